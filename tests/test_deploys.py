"""Workers that are stopped, replaced and of different ages: what a deploy may cost, which is nothing."""

import asyncio
import signal
import time
from datetime import timedelta
from uuid import UUID

import pytest

from fanout import BatchHandle
from fanout.errors import UnknownHandler
from fanout.store.audit import install_audit
from tests.ledger import closed
from tests.support import Deployment, WorkerProcess, eventually
from tests.timeline import Timeline, assert_sound, start_worker

pytestmark = pytest.mark.steady


async def assert_nothing_charged(batch: BatchHandle) -> None:
    assert {(row.attempts, row.crashes) async for row in batch.results()} == {(0, 0)}


async def ended(worker: WorkerProcess) -> int:
    return await asyncio.to_thread(worker.process.wait, 60)


async def claims(fanout: Deployment, batch: BatchHandle) -> int:
    return (await fanout.statuses(batch.batch_id)).get("processing", 0)


async def test_items_of_one_attempt_end_well_before_a_stopped_worker_does(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    worker = await start_worker(fanout, "--concurrency", "4")
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit("timed.once", [{"seconds": 3}] * 4)
    await timeline.noted("start", batch, 4)
    worker.process.send_signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert await fanout.statuses(batch.batch_id) == {"completed": 4}
    assert len(timeline.flat("start", batch)) == 4
    assert await fanout.client.workers() == []
    await start_worker(fanout)
    assert (await closed(batch)).completed == 4
    assert len(timeline.flat("start", batch)) == 4
    await assert_nothing_charged(batch)
    await assert_sound(fanout, batch)


@pytest.mark.parametrize("hurried", [False, True])
async def test_what_a_stopped_worker_cannot_finish_starts_elsewhere_at_once(fanout: Deployment, hurried: bool) -> None:
    """The grace time is over, or a second SIGTERM ended it: rows are given back before the worker ends, uncharged."""
    worker = await start_worker(fanout, "--concurrency", "4", "--grace", "60" if hurried else "5")
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit("timed.once", [{"seconds": 60}] * 4)
    await timeline.noted("start", batch, 4)
    began = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    if hurried:
        await eventually(lambda: said(worker, "draining"))
        worker.process.send_signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert time.monotonic() - began < (10 if hurried else 15)
    assert await claims(fanout, batch) == 0
    await assert_nothing_charged(batch)
    await start_worker(fanout, "--concurrency", "4")
    ready = time.time()
    starts = await timeline.noted("start", batch, 8)
    print(f"started {starts[-1] - ready:.2f} s after the next worker was ready")
    assert starts[-1] - ready < 10
    await batch.cancel()
    await closed(batch)


async def said(worker: WorkerProcess, words: str) -> bool:
    return words in worker.log.read_text()


async def test_a_rolling_restart_costs_no_item_anything(fanout: Deployment) -> None:
    await roll_through(fanout, items=2_000)


async def roll_through(fanout: Deployment, items: int) -> None:
    """Two workers; every five seconds the older one gets SIGTERM as a new one has come up."""
    await install_audit(fanout.pool)
    crew = [await start_worker(fanout, "--concurrency", "2") for _ in range(2)]
    timeline = Timeline(fanout.folder)
    seconds = [{"seconds": 0.02 + 0.03 * number / items} for number in range(items)]
    batch = await fanout.client.submit("timed.work", seconds)
    waiting = asyncio.create_task(closed(batch, 120))
    restarts = 0
    while not waiting.done():
        await asyncio.wait([waiting], timeout=5)
        if not waiting.done():
            restarts += 1
            crew.append(await start_worker(fanout, "--concurrency", "2"))
            oldest = crew.pop(0)
            oldest.process.send_signal(signal.SIGTERM)
            assert await ended(oldest) == 0
    print(f"{restarts} restarts")
    assert restarts >= 1
    assert waiting.result().completed == items
    assert {len(moments) for moments in timeline.moments("start", batch).values()} == {1}
    await assert_nothing_charged(batch)
    await assert_sound(fanout, batch)


async def worker_ids(fanout: Deployment, batch: BatchHandle) -> set[UUID]:
    """The workers whose settles were recorded."""
    rows = await fanout.pool.fetch("select distinct worker_id from fanout.results where batch_id = $1", batch.batch_id)
    return {row["worker_id"] for row in rows}


async def test_only_workers_that_know_a_handler_run_it(fanout: Deployment) -> None:
    await fanout.start_worker()
    await fanout.start_worker(handlers="tests.handlers.newer")
    capable = [worker.facts.id for worker in await fanout.client.workers() if "newer.h2" in worker.facts.handlers]
    batch = await fanout.client.submit("newer.h2", range(20))
    assert (await batch.progress()).workers == 1
    status = await closed(batch)
    assert (status.completed, await worker_ids(fanout, batch)) == (20, set(capable))
    await assert_nothing_charged(batch)


async def test_a_handler_is_known_for_a_day_after_its_worker_was_seen(fanout: Deployment) -> None:
    """A lease that ran out, as in an outage, is no misspelt name."""
    worker = await fanout.start_worker()
    worker.kill()
    seen = "update fanout.workers set seen_at = clock_timestamp() - $1::interval"
    await fanout.pool.execute(seen, timedelta(hours=23))
    assert (await fanout.client.submit("test.echo", [1], key="k")).outcome == "started"
    await fanout.pool.execute(seen, timedelta(hours=25))
    with pytest.raises(UnknownHandler):
        await fanout.client.submit("test.echo", [1], key="later")


async def test_a_batch_waits_for_a_worker_that_knows_its_handler(fanout: Deployment) -> None:
    await fanout.start_worker()
    with pytest.raises(UnknownHandler):
        await fanout.client.submit("newer.h2", range(20), key="early")
    batch = await fanout.client.submit("newer.h2", range(20), key="early", allow_unknown=True)

    async def opened() -> bool:
        return (await batch.progress()).started_at is not None

    await eventually(opened)
    status = await batch.progress()
    assert (status.status, status.pending, status.workers) == ("processing", 20, 0)
    told = await asyncio.to_thread(fanout.run, "status", "newer.h2/early")
    assert "waits for a worker that knows newer.h2" in told.stdout
    await fanout.start_worker(handlers="tests.handlers.newer")
    ready = time.monotonic()

    async def settled() -> bool:
        return (await batch.progress()).settled > 0

    await eventually(settled)
    assert time.monotonic() - ready < 15
    assert (await closed(batch)).completed == 20
    await assert_nothing_charged(batch)


@pytest.mark.chaos
async def test_an_item_in_back_off_is_no_dead_work(fanout: Deployment) -> None:
    await back_off(fanout, seconds=4)


async def back_off(fanout: Deployment, seconds: float) -> None:
    """It starts exactly twice, and not before its time; jitter shortens a back-off by a tenth at most."""
    await start_worker(fanout, FANOUT_TEST_BACK_OFF=str(seconds))
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit("timed.later", [None])
    status = await closed(batch, seconds + 60)
    first, second = timeline.flat("start", batch)
    assert second - first >= 0.9 * seconds
    assert status.completed == 1
    assert [(row.attempts, row.crashes) async for row in batch.results()] == [(1, 0)]


@pytest.mark.chaos
async def test_the_end_of_a_long_queue_waits_untouched(fanout: Deployment) -> None:
    await queue(fanout, items=100, seconds=0.05)


async def queue(fanout: Deployment, items: int, seconds: float) -> None:
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "1")
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit("timed.work", [{"seconds": seconds}] * items)
    await closed(batch, 60 + 2 * items * seconds)
    assert {seq: len(moments) for seq, moments in timeline.moments("start", batch).items()} == dict.fromkeys(
        range(items), 1
    )
    await assert_nothing_charged(batch)
    await assert_sound(fanout, batch)


async def test_a_draining_worker_takes_no_more_ranges(fanout: Deployment) -> None:
    """With slots free and ranges waiting, it would only hand them back, again and again, for the whole grace time."""
    worker = await start_worker(fanout, "--concurrency", "20", "--grace", "5")
    timeline = Timeline(fanout.folder)
    seconds = [60, 60, *[0.05] * 4_000]
    batch = await fanout.client.submit("timed.once", [{"seconds": item} for item in seconds])
    await timeline.noted("start", batch, 100)
    workflow = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)
    worker.process.send_signal(signal.SIGTERM)
    await eventually(lambda: said(worker, "draining"))
    before = (await workflow.describe()).history_length
    assert await ended(worker) == 0
    assert (await workflow.describe()).history_length < before + 120
    await assert_nothing_charged(batch)
