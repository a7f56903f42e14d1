"""Cancels and retries against what may happen at the same moment: finishes, starts, back-off, closes and deaths."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from fanout import BatchHandle, FanoutClient
from fanout.store.audit import install_audit
from tests.ledger import closed, events, executions
from tests.support import Deployment, eventually
from tests.timeline import Timeline, assert_sound, start_worker

pytestmark = pytest.mark.steady

SEED = 20261130
ROUNDS_AT_ONCE = 20
LAST_START_SECONDS = 2.0
"""How long after the answer to a cancel an item that was claimed before it may still start."""


async def assert_nothing_started_late(timeline: Timeline, batch: BatchHandle, acknowledged: float) -> float:
    late = max(timeline.flat("start", batch), default=0.0) - acknowledged
    assert late < LAST_START_SECONDS, f"an item started {late:.2f} s after the cancel was acknowledged"
    return late


async def test_a_cancel_against_a_finish_leaves_one_end_for_each_item(fanout: Deployment) -> None:
    await cancel_against_finish(fanout, rounds=40)


async def cancel_against_finish(fanout: Deployment, rounds: int) -> None:
    """Items of 100 ms, half of them with a transient error; two clients cancel after 80 to 120 ms."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "100")
    timeline = Timeline(fanout.folder)
    async with FanoutClient.connect(fanout.settings, servers=fanout.servers) as other:

        async def one(number: int) -> str:
            delay = 0.08 + 0.04 * number / max(1, rounds - 1)
            return await cancel_once(fanout, other, timeline, delay, number % 2 == 1)

        await in_waves(one, rounds)


async def in_waves(one: Callable[[int], Awaitable[str | None]], rounds: int) -> list[str | None]:
    """Plays all rounds, some of them at once; prints and answers how they ended."""
    ends: list[str | None] = []
    for first in range(0, rounds, ROUNDS_AT_ONCE):
        wave = range(first, min(rounds, first + ROUNDS_AT_ONCE))
        ends += await asyncio.gather(*(one(number) for number in wave))
    print({end: ends.count(end) for end in set(ends)})
    return ends


async def cancel_once(fanout: Deployment, other: FanoutClient, timeline: Timeline, delay: float, fails: bool) -> str:
    batch = await fanout.client.submit("timed.work", [{"seconds": 0.1, "fail": fails}] * 2)
    [began, *_] = await timeline.noted("start", batch)
    elsewhere = await other.get(batch.batch_id)
    await asyncio.sleep(max(0.0, began + delay - time.time()))
    await asyncio.gather(batch.cancel("one"), elsewhere.cancel("two"))
    acknowledged = time.time()
    status = await closed(batch)
    assert await elsewhere.cancel("three") == await batch.progress() == status
    await assert_nothing_started_late(timeline, batch, acknowledged)
    await assert_sound(fanout, batch)
    told = [event["reason"] for event in await events(batch, fanout, "cancelling")]
    assert told == ([status.reason] if status.status == "cancelled" else [])
    assert status.reason in ("one", "two", None)
    assert status.status == "cancelled" or not fails
    return f"{status.status}, {status.completed} completed"


async def test_no_item_of_a_big_batch_starts_after_its_cancel(fanout: Deployment) -> None:
    await cancel_under_load(fanout, tries=3, rng=random.Random(SEED))


async def cancel_under_load(fanout: Deployment, tries: int, rng: random.Random) -> None:
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "50")
    timeline = Timeline(fanout.folder)
    latest: list[float] = []
    for _ in range(tries):
        batch = await fanout.client.submit("timed.work", [{"seconds": rng.uniform(0.02, 0.2)} for _ in range(5_000)])
        await timeline.noted("start", batch, rng.randrange(1, 1_000))
        await batch.cancel("enough")
        acknowledged = time.time()
        status = await closed(batch)
        latest.append(await assert_nothing_started_late(timeline, batch, acknowledged))
        await assert_sound(fanout, batch)
        assert (status.status, status.reason, status.failed) == ("cancelled", "enough", 0)
        starts = timeline.moments("start", batch)
        assert all(len(moments) == 1 for moments in starts.values())
        assert {row.seq async for row in batch.results("completed")} <= starts.keys()
    print(f"the last start came {max(latest):.2f} s after the answer at most")


@pytest.mark.parametrize("handler", ["timed.loop", "timed.thread"])
@pytest.mark.chaos
async def test_a_running_handler_is_told_within_two_heartbeats(fanout: Deployment, handler: str) -> None:
    await start_worker(fanout, "--concurrency", "3")
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit(handler, range(3))
    await timeline.noted("start", batch, 3)
    await batch.cancel()
    acknowledged = time.time()
    told = await timeline.noted("told", batch, 3)
    assert told[-1] - acknowledged < 2 * fanout.settings.heartbeat_seconds
    assert (await closed(batch)).status == "cancelled"


async def test_an_item_in_back_off_is_settled_at_once(fanout: Deployment) -> None:
    """Asleep in Temporal or in the workflow's own timer: neither is waited for."""
    await install_audit(fanout.pool)
    await start_worker(fanout, FANOUT_TEST_BACK_OFF="60")
    batch = await fanout.client.submit("timed.later", range(3))
    await eventually(lambda: asleep(fanout, batch, 3))
    asked = time.monotonic()
    status = await batch.cancel("enough")
    assert (status.cancelled, status.pending, status.processing) == (3, 0, 0)
    assert (await closed(batch)).status == "cancelled"
    assert time.monotonic() - asked < 10
    await assert_sound(fanout, batch)
    took = await fanout.pool.fetchval(
        """select extract(epoch from max(r.settled_at) - min(b.cancelling_at))::float8
        from fanout.batches b join fanout.results r on r.batch_id = b.id where b.id = $1""",
        batch.batch_id,
    )
    assert took < 3
    assert [row.attempts async for row in batch.results()] == [1, 1, 1]


async def asleep(fanout: Deployment, batch: BatchHandle, number: int) -> bool:
    waiting = "select count(*) from fanout.results where batch_id = $1 and status = 'pending' and due_at is not null"
    return bool(await fanout.pool.fetchval(waiting, batch.batch_id) == number)


Reach = Callable[[Deployment, Timeline], Awaitable[BatchHandle]]


async def before_any_worker(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    return await fanout.client.submit("timed.work", [{"seconds": 0.1}] * 20, allow_unknown=True)


async def while_it_opens(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    await start_worker(fanout)
    return await fanout.client.submit("timed.work", [{"seconds": 20}] * 20)


async def while_it_fans_out(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    await start_worker(fanout, "--concurrency", "10")
    batch = await fanout.client.submit("timed.work", [{"seconds": 0.3}] * 2_000)
    await timeline.noted("start", batch, 3)
    return batch


async def while_it_is_paused(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    batch = await while_it_fans_out(fanout, timeline)
    await batch.pause()

    async def quiet() -> bool:
        return (await batch.progress()).processing == 0

    await eventually(quiet)
    return batch


async def while_items_wait(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    await start_worker(fanout, FANOUT_TEST_BACK_OFF="60")
    batch = await fanout.client.submit("timed.later", range(20))
    await eventually(lambda: asleep(fanout, batch, 20))
    return batch


async def after_its_worker_was_killed(fanout: Deployment, timeline: Timeline) -> BatchHandle:
    worker = await start_worker(fanout, "--concurrency", "10")
    batch = await fanout.client.submit("timed.work", [{"seconds": 20}] * 20)
    await timeline.noted("start", batch, 10)
    worker.kill()
    return batch


@pytest.mark.parametrize(
    "reach",
    [
        before_any_worker,
        while_it_opens,
        while_it_fans_out,
        while_it_is_paused,
        while_items_wait,
        after_its_worker_was_killed,
    ],
)
async def test_a_cancel_holds_in_every_phase(fanout: Deployment, reach: Reach) -> None:
    await install_audit(fanout.pool)
    timeline = Timeline(fanout.folder)
    batch = await reach(fanout, timeline)
    answer = await batch.cancel("enough")
    acknowledged = time.time()
    assert answer.status in ("cancelling", "cancelled")
    assert answer.pending == 0
    if reach in (before_any_worker, after_its_worker_was_killed):
        await start_worker(fanout)
    await closed(batch)
    await assert_nothing_started_late(timeline, batch, acknowledged)
    status = await assert_sound(fanout, batch)
    assert (status.status, status.reason, status.failed) == ("cancelled", "enough", 0)
    assert len(await executions(fanout, status.workflow_id)) == 1


@pytest.mark.chaos
async def test_a_cancel_at_the_moment_of_the_close_is_taken_whole_or_not_at_all(fanout: Deployment) -> None:
    await cancel_against_close(fanout, rounds=30)


async def cancel_against_close(fanout: Deployment, rounds: int) -> None:
    """One item of 200 ms; the cancel comes from 50 ms before to 350 ms after its end."""
    await install_audit(fanout.pool)
    await start_worker(fanout)
    timeline = Timeline(fanout.folder)

    async def one(number: int) -> str:
        batch = await fanout.client.submit("timed.work", [{"seconds": 0.2}])
        [began] = await timeline.noted("start", batch)
        await asyncio.sleep(max(0.0, began + 0.15 + 0.4 * number / rounds - time.time()))
        await batch.cancel("enough")
        status = await closed(batch)
        await assert_sound(fanout, batch)
        assert (status.status == "cancelled") == (len(await events(batch, fanout, "cancelling")) == 1)
        assert status.reason == ("enough" if status.status == "cancelled" else None)
        return status.status

    await in_waves(one, rounds)


@pytest.mark.chaos
async def test_a_retry_that_was_answered_while_the_batch_closed_is_carried_out(fanout: Deployment) -> None:
    await retry_against_close(fanout, rounds=30)


async def retry_against_close(fanout: Deployment, rounds: int) -> None:
    """The Web UI's update while the last item ends: it is refused, or the item runs again; the batch never hangs."""
    await start_worker(fanout, "--concurrency", "100")
    timeline = Timeline(fanout.folder)

    async def one(number: int) -> str | None:
        return await retry_once(fanout, timeline, 0.3 + number / max(1, rounds - 1))

    answers = await in_waves(one, rounds)
    assert "processing" in answers


async def retry_once(fanout: Deployment, timeline: Timeline, delay: float) -> str | None:
    batch = await fanout.client.submit("timed.mended", [{"bad": True, "seconds": 0.0}, {"seconds": 0.6}])
    await timeline.noted("start", batch, 2)
    [began] = timeline.moments("start", batch)[1]

    async def failed() -> bool:
        return (await batch.progress()).failed == 1

    # Before that there is nothing to run again.
    await eventually(failed)
    workflow = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)
    await asyncio.sleep(max(0.0, began + delay - time.time()))
    answer: str | None = None
    # Refused where the run had ended, or ended before it took the update up.
    with suppress(RPCError, WorkflowUpdateFailedError):
        answer = await workflow.execute_update("retry", None)
    await asyncio.wait_for(workflow.result(), 30)
    status = await batch.progress()
    assert status.closed
    if answer is not None:
        assert (answer, status.status, status.completed, status.epoch) == ("processing", "completed", 2, 2)
    assert status.epoch == len(await events(batch, fanout, "closed")) or answer is not None
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    return answer
