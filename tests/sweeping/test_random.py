"""Two runs of random faults, each with its own seed: no batch is healed without a cause, and none is left open."""

import pytest

from tests.support import Deployment
from tests.sweeping.random_run import run_at_random

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("seed", range(2))
async def test_the_sweeper_does_nothing_without_a_cause(fanout: Deployment, seed: int) -> None:
    await run_at_random(fanout, seed)
