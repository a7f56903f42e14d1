"""The schedule that ticks the sweeper: one of them, as it should be, and an operator's pause stays."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Schedule, ScheduleActionStartWorkflow
from temporalio.service import RPCError

from fanout.client.sweep_schedule import SweepSchedule
from fanout.contracts import SweepStart
from fanout.store import check_schema
from tests.support import Deployment, eventually
from tests.sweeping.support import start_worker

pytestmark = pytest.mark.chaos


async def schedule(fanout: Deployment, every: float = 3600, **facts: Any) -> SweepSchedule:
    settings = fanout.settings.with_values({"sweep_every_seconds": every})
    database_id = facts.get("database_id") or await check_schema(fanout.pool)
    return SweepSchedule(fanout.temporal, settings, database_id)


async def found(fanout: Deployment) -> Schedule:
    return (await fanout.temporal.get_schedule_handle("fanout-sweeper").describe()).schedule


async def start_of(fanout: Deployment) -> SweepStart:
    action = (await found(fanout)).action
    assert isinstance(action, ScheduleActionStartWorkflow)
    [start] = await fanout.temporal.data_converter.decode(action.args, [SweepStart])
    assert isinstance(start, SweepStart)
    return start


def interval(of: Schedule) -> timedelta:
    [only] = of.spec.intervals
    return only.every


async def updates(fanout: Deployment) -> Any:
    return (await fanout.temporal.get_schedule_handle("fanout-sweeper").describe()).info.last_updated_at


async def test_any_number_of_workers_make_one_schedule_and_leave_it_as_it_is(fanout: Deployment) -> None:
    many = [await schedule(fanout) for _ in range(7)]
    await asyncio.gather(*(each.assert_it() for each in many))
    for each in many:
        await each.assert_it()
    assert interval(await found(fanout)) == timedelta(hours=1)
    assert await updates(fanout) is None
    assert (await start_of(fanout)).database_id == await check_schema(fanout.pool)


async def test_another_interval_or_database_is_adopted_and_a_pause_stays(fanout: Deployment) -> None:
    await (await schedule(fanout)).assert_it()
    await fanout.temporal.get_schedule_handle("fanout-sweeper").pause(note="until monday")
    await (await schedule(fanout, every=1800)).assert_it()
    assert interval(await found(fanout)) == timedelta(minutes=30)
    other = uuid4()
    await (await schedule(fanout, every=1800, database_id=other)).assert_it()
    assert (await start_of(fanout)).database_id == other
    state = (await found(fanout)).state
    assert (state.paused, state.note) == (True, "until monday")


async def test_a_worker_makes_the_schedule_and_makes_it_again_when_it_is_gone(fanout: Deployment) -> None:
    async def there() -> bool:
        with suppress(RPCError):
            return interval(await found(fanout)) == timedelta(seconds=2)
        return False

    await start_worker(fanout)
    await eventually(there)
    await fanout.temporal.get_schedule_handle("fanout-sweeper").delete()
    await eventually(there)


async def test_workers_leave_a_paused_sweeper_paused(fanout: Deployment) -> None:
    await (await schedule(fanout)).assert_it()
    await fanout.temporal.get_schedule_handle("fanout-sweeper").pause(note="maintenance")
    await start_worker(fanout)

    async def adopted() -> bool:
        return interval(await found(fanout)) == timedelta(seconds=2)

    await eventually(adopted)
    state = (await found(fanout)).state
    assert (state.paused, state.note) == (True, "maintenance")
    assert await fanout.pool.fetchval("select count(*) from fanout.last_sweep") == 0
