"""The whole campaign: random faults against random batches, one JSON line a run."""

import json
import os
import random
from pathlib import Path

import pytest

from tests.chaos.campaign import campaign, summary

RUNS = int(os.environ.get("FANOUT_CHAOS_RUNS") or 200)
PARALLEL = 2


@pytest.mark.chaos
@pytest.mark.timeout(0)
async def test_no_run_of_the_campaign_finds_anything(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"SEED={seed}", flush=True)
    runs = await campaign(tmp_path, [seed + number for number in range(RUNS)], PARALLEL, print)
    told = summary(runs)
    print(json.dumps(told))
    assert told["bad_seeds"] == []
