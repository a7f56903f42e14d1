"""Many runs of random faults under the sweeper, from a seed that is printed."""

import os
import random

import pytest

from tests.support import Deployment
from tests.sweeping.random_run import run_at_random

pytestmark = pytest.mark.chaos

SEED = int(os.environ.get("FANOUT_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
RUNS = 125


@pytest.mark.parametrize("number", range(RUNS))
async def test_the_sweeper_does_nothing_without_a_cause(fanout: Deployment, number: int) -> None:
    await run_at_random(fanout, SEED + number)
