"""Twelve batches under random faults, three runs of their own seeds; `make chaos` has many more."""

import pytest

from tests.support import Deployment
from tests.sweeping.random_run import run_at_random


@pytest.mark.parametrize("seed", range(3))
async def test_the_sweeper_does_nothing_without_a_cause(fanout: Deployment, seed: int) -> None:
    await run_at_random(fanout, seed)
