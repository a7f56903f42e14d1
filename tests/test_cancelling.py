"""Cancels of running batches: who is told, who is waited for, and what the rows say afterwards."""

import asyncio
import time

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from fanout import BatchHandle
from fanout.store.audit import count_settles, install_audit
from tests.ledger import calls, closed, events, executions, start_worker
from tests.support import Deployment, eventually


async def began(fanout: Deployment, number: int) -> None:
    async def noted() -> bool:
        return len(list(fanout.folder.glob("start-*"))) >= number

    await eventually(noted)


async def assert_cancelled_once(fanout: Deployment, batch: BatchHandle, reason: str) -> None:
    status = await batch.progress()
    assert (status.status, status.reason) == ("cancelled", reason)
    assert [event["reason"] for event in await events(batch, fanout, "cancelling")] == [reason]
    assert len(await events(batch, fanout, "closed")) == 1
    workflow = fanout.temporal.get_workflow_handle(status.workflow_id)
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(workflow.result(), 60)
    assert (await workflow.describe()).status == WorkflowExecutionStatus.CANCELED
    assert len(await executions(fanout, status.workflow_id)) == 1
    assert await fanout.client.store.read_violations(batch.batch_id) == []


@pytest.mark.parametrize(("handler", "completed"), [("case.obeys", 0), ("case.listens", 3)])
async def test_a_cancel_ends_what_runs_and_settles_the_rest(fanout: Deployment, handler: str, completed: int) -> None:
    """A coroutine is cancelled; a thread is told, and what it returns still counts."""
    await start_worker(fanout, "--concurrency", "3")
    batch = await fanout.client.submit(handler, range(8))
    await began(fanout, 3)
    first = await batch.cancel("enough")
    assert first.status in ("cancelling", "cancelled")
    assert (first.pending, first.cancelled >= 5) == (0, True)
    await asyncio.gather(*(batch.cancel("again") for _ in range(5)))
    status = await closed(batch, 15)
    assert (status.completed, status.failed, status.cancelled) == (completed, 0, 8 - completed)
    ran = 0
    async for row in batch.results():
        assert len(calls(fanout, row.seq)) == len(calls(fanout, row.seq, "end")) <= 1
        ran += len(calls(fanout, row.seq))
        if completed and calls(fanout, row.seq):
            assert (row.status, row.result) == ("completed", "told")
            continue
        assert row.error is not None
        assert (row.status, row.attempts, row.error["code"], row.error["message"]) == (
            "cancelled",
            0,
            "cancelled",
            "enough",
        )
    assert ran == 3
    assert await batch.cancel("of a closed batch") == status
    await assert_cancelled_once(fanout, batch, "enough")


async def test_a_handler_that_ignores_its_cancel_is_waited_for_and_then_left_behind(fanout: Deployment) -> None:
    """The batch is `cancelling` for the grace time; the slot stays taken until the handler ends, unheard."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "1")
    batch = await fanout.client.submit("case.deaf", [1])
    await began(fanout, 1)
    status = await batch.cancel("enough")
    assert (status.status, status.processing, status.cancelled) == ("cancelling", 1, 0)
    started = time.monotonic()
    assert (await closed(batch, 60)).cancelled == 1
    assert 25 < time.monotonic() - started < 45
    assert len(calls(fanout, 0, "swallowed")) >= 1
    waiting = await fanout.client.submit("case.type", ["after"])

    async def told() -> bool:
        return (await waiting.progress()).started_at is not None

    await eventually(told)
    assert len(calls(fanout, 0)) == 1
    (fanout.folder / "go").touch()
    assert (await closed(waiting)).completed == 1
    [ended], [_, following] = calls(fanout, 0, "end"), calls(fanout, 0)
    assert ended <= following
    assert await count_settles(fanout.pool, batch.batch_id) == 1
    await assert_cancelled_once(fanout, batch, "enough")
