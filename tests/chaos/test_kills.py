"""Twenty batches, each with its only worker killed at a random moment; frozen workers at the default time limits."""

import os
import random
from pathlib import Path

import pytest

from fanout.devstack import Stack
from tests.support import deployment
from tests.test_crashes import freeze_and_wake, kill_at_random

pytestmark = pytest.mark.chaos

SEED = int(os.environ.get("FANOUT_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
ROUNDS = 20


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_every_batch_closes_by_itself(stack: Stack, template: str, tmp_path: Path, number: int) -> None:
    print(f"FANOUT_CHAOS_SEED={SEED}")
    async with deployment(stack, template, tmp_path, heartbeat_seconds=3.0) as fanout:
        await kill_at_random(fanout, random.Random(SEED + number))


@pytest.mark.parametrize("ending", ["success", "permanent", "transient", "slow"])
async def test_a_frozen_worker_records_nothing_at_default_settings(
    stack: Stack, template: str, tmp_path: Path, ending: str
) -> None:
    async with deployment(stack, template, tmp_path) as fanout:
        await freeze_and_wake(fanout, ending)
