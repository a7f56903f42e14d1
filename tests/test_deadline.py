"""A deadline: it counts from the submit, whatever the batch does meanwhile."""

import asyncio
from datetime import timedelta

from fanout import BatchHandle, Status
from tests.ledger import closed, events, start_worker
from tests.support import Deployment, eventually
from tests.test_budget import HANDLERS, failure_type


async def assert_gave_up(fanout: Deployment, batch: BatchHandle, status: Status) -> None:
    assert (status.status, status.reason, status.failed) == ("failed", "deadline", 0)
    assert status.deadline_at is not None
    assert status.closed_at is not None
    assert status.closed_at >= status.deadline_at
    assert len(await events(batch, fanout, "deadline_passed")) == 1
    assert await failure_type(fanout, status.workflow_id) == "deadline"
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_running_batch_fails_at_its_deadline(fanout: Deployment) -> None:
    """What runs is interrupted, and what had ended keeps its result."""
    await start_worker(fanout, "--concurrency", "4", handlers=HANDLERS)
    items = ["good"] * 4 + ["long"] * 20
    batch = await fanout.client.submit("closing.work", items, deadline=timedelta(seconds=10))
    status = await closed(batch, 40)
    assert (status.completed, status.cancelled) == (4, 20)
    await assert_gave_up(fanout, batch, status)
    assert status.deadline_at is not None
    assert abs((status.deadline_at - status.created_at).total_seconds() - 10) < 0.1


async def test_a_deadline_counts_while_a_batch_is_paused(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["long"] * 3, deadline=timedelta(seconds=4))
    await batch.pause()
    await assert_gave_up(fanout, batch, await closed(batch, 30))


async def test_a_deadline_reaches_every_shard_of_a_big_batch(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "20", handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["long"] * 10_001, deadline=timedelta(seconds=6))
    status = await closed(batch, 40)
    assert status.cancelled == 10_001
    await assert_gave_up(fanout, batch, status)


async def test_a_deadline_needs_no_worker_that_knows_the_handler(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("nobody.knows", [1] * 10, deadline=timedelta(seconds=2), allow_unknown=True)
    status = await closed(batch, 30)
    assert status.cancelled == 10
    await assert_gave_up(fanout, batch, status)


async def test_a_batch_whose_deadline_passes_before_any_worker_comes_starts_nothing(fanout: Deployment) -> None:
    batch = await fanout.client.submit(
        "closing.work", ["good"] * 5, deadline=timedelta(seconds=0.2), allow_unknown=True
    )

    async def passed() -> bool:
        return bool(await fanout.pool.fetchval("select deadline_at < clock_timestamp() from fanout.batches"))

    await eventually(passed)
    await start_worker(fanout, handlers=HANDLERS)
    status = await closed(batch)
    assert status.cancelled == 5
    assert not list(fanout.folder.glob("start-*"))
    await assert_gave_up(fanout, batch, status)


async def test_a_retry_after_the_deadline_has_none(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("nobody.knows", ["x"], deadline=timedelta(seconds=1), allow_unknown=True)
    assert (await closed(batch)).status == "failed"
    assert (await batch.retry()).reopened == 0
    retried = await batch.retry(status="cancelled")
    assert (retried.reopened, retried.epoch) == (1, 2)
    status = await batch.progress()
    assert (status.status, status.deadline_at, status.reason, status.cancelled) == ("processing", None, None, 0)
    await batch.cancel("enough")
    status = await closed(batch)
    assert (status.status, status.reason) == ("cancelled", "enough")
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_batch_that_is_in_time_notices_nothing(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["mended"], deadline=timedelta(days=3650))
    assert (await closed(batch)).status == "completed_with_failures"
    await batch.retry()
    status = await closed(batch)
    assert (status.status, status.deadline_at is not None) == ("completed", True)
    workflow = fanout.temporal.get_workflow_handle(status.workflow_id)
    await asyncio.wait_for(workflow.result(), 60)
    assert await events(batch, fanout, "deadline_passed") == []
