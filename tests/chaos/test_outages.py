"""Outages at full length, of PostgreSQL and of Temporal."""

from pathlib import Path

import pytest

from fanout.devstack import Stack
from tests.faults.test_contention import contend, grow
from tests.faults.test_database_outages import (
    Outage,
    lose_answers,
    outlive,
    read_only,
    restarted,
    run_across,
    stopped,
    terminated,
)
from tests.faults.test_stalled_lines import outlive_silence, stall
from tests.faults.test_temporal_outages import lose_temporal, outlive_temporal
from tests.support import Deployment, deployment

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(("outage", "seconds"), [(read_only, 10), (restarted, 0), (terminated, 10), (stopped, 30)])
async def test_an_outage_of_the_database_costs_no_item_anything(
    stack: Stack, tmp_path: Path, outage: Outage, seconds: float
) -> None:
    await outlive(stack, tmp_path, outage, seconds)


async def test_items_that_run_across_half_a_minute_without_servers_are_not_started_again(fanout: Deployment) -> None:
    await run_across(fanout, 30)


@pytest.mark.parametrize("seed", range(10))
async def test_lost_acknowledgements_of_many_runs(fanout: Deployment, seed: int) -> None:
    await lose_answers(fanout, rounds=12, seed=seed)


async def test_a_batch_outlives_a_minute_without_temporal(stack: Stack, tmp_path: Path) -> None:
    await outlive_temporal(stack, tmp_path, 60)


async def test_a_worker_that_lost_temporal_for_a_minute_keeps_its_items(fanout: Deployment) -> None:
    await lose_temporal(fanout, 60)


async def test_progress_only_ever_grows_through_half_a_minute_of_kills(fanout: Deployment) -> None:
    await grow(fanout, seconds=30, kills=6)


async def test_handlers_that_use_the_client_outlast_a_long_lock(fanout: Deployment) -> None:
    await contend(fanout, 20)


async def test_a_long_stall_of_the_line_costs_no_item_anything(fanout: Deployment) -> None:
    """Longer than any limit of a statement of a worker."""
    await stall(fanout, 30)


async def test_silent_connections_cost_no_item_anything(stack: Stack, template: str, tmp_path: Path) -> None:
    async with deployment(stack, template, tmp_path) as fanout:
        await outlive_silence(fanout)
