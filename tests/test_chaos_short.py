"""A small piece of the chaos campaign in every test session; `make chaos` runs all of it."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.chaos.campaign import SMALL, run_once
from tests.chaos.rig import Lane


@pytest.fixture(scope="session")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A PostgreSQL and a Temporal that may be killed; the runs of this process go over them one after another."""
    made = Lane(tmp_path_factory.mktemp("lane"))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.kill())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
async def test_all_closes_right_whatever_is_done_to_it(lane: Lane, seed: int) -> None:
    run = await run_once(lane, seed, SMALL)
    print(run.line)
    assert run.violations == [], run.line
