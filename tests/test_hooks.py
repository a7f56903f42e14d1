"""When a batch closes one item tells of it: once an epoch, whatever dies in between."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import ActivityEnvironment

from activities.batches import BatchActivities
from fanout import BatchHandle, Status
from fanout.client.starting import Starter
from fanout.contracts import CloseRequest
from fanout.errors import UnknownBatch
from fanout.store import Completion, WorkStore, check_schema
from tests.ledger import closed, start_worker
from tests.support import Deployment, eventually
from tests.test_budget import HANDLERS

LAST_SETTLE = """
select extract(epoch from b.closed_at - max(r.settled_at))::float8
from fanout.batches b join fanout.results r on r.batch_id = b.id where b.id = $1 group by b.id
"""


def told(fanout: Deployment) -> list[Any]:
    """What the hook was called with: (idempotency key, batch key, payload)."""
    file = fanout.folder / "hook"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def follow_up(fanout: Deployment, batch: BatchHandle, epoch: int = 1) -> Status:
    """The closed batch of the hook."""

    async def found() -> BatchHandle | None:
        try:
            return await fanout.client.get(f"closing.hook/{batch.batch_id}/{epoch}/closed")
        except UnknownBatch:
            return None

    hook = await eventually(found)
    assert hook is not None
    return await closed(hook)


async def assert_sound(fanout: Deployment, *batches: UUID) -> None:
    for batch_id in batches:
        assert await fanout.client.store.read_violations(batch_id) == []


async def test_a_batch_whose_items_all_fail_closes_and_tells_of_it_once(fanout: Deployment) -> None:
    """And one whose last item fails."""
    await start_worker(fanout, "--concurrency", "5", handlers=HANDLERS)
    for items in (["bad"] * 5, ["good"] * 4 + ["bad"]):
        batch = await fanout.client.submit("closing.work", items, on_close="closing.hook", title="five things")
        status = await closed(batch)
        assert (status.status, status.failed) == ("completed_with_failures", items.count("bad"))
        assert await fanout.pool.fetchval(LAST_SETTLE, batch.batch_id) < 4
        hook = await follow_up(fanout, batch)
        assert (hook.status, hook.total, hook.epoch) == ("completed", 1, 1)
        idempotency_key, key, payload = told(fanout)[-1]
        assert (idempotency_key, key) == (f"{hook.batch_id}/0", f"{batch.batch_id}/1/closed")
        assert payload.keys() == Status.model_fields.keys()
        shown = json.loads(status.model_dump_json())
        assert {**payload, "workers": 0} == {**shown, "workers": 0}
        await assert_sound(fanout, batch.batch_id, hook.batch_id)
    assert len(told(fanout)) == 2
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 4


async def test_a_worker_killed_inside_the_hook_has_it_called_again_with_the_same_id(fanout: Deployment) -> None:
    (fanout.folder / "hold").touch()
    first = await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["bad"] * 5, on_close="closing.hook")

    async def called() -> bool:
        return bool(told(fanout))

    await eventually(called)
    first.kill()
    (fanout.folder / "hold").unlink()
    await start_worker(fanout, handlers=HANDLERS)
    hook = await follow_up(fanout, batch)
    assert hook.completed == 1
    assert len(told(fanout)) == 2
    assert told(fanout)[0] == told(fanout)[1]
    await assert_sound(fanout, batch.batch_id, hook.batch_id)


async def test_a_cancelled_batch_and_an_empty_one_tell_of_their_end(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    empty = await fanout.client.submit("closing.work", [], on_close="closing.hook")
    await follow_up(fanout, empty)
    batch = await fanout.client.submit("closing.work", ["long"] * 5, on_close="closing.hook")
    await batch.cancel("enough")
    assert (await closed(batch, 20)).status == "cancelled"
    hook = await follow_up(fanout, batch)
    ends = [(payload["status"], payload["cancelled"], payload["reason"]) for _, _, payload in told(fanout)]
    assert ends == [("completed", 0, None), ("cancelled", 5, "enough")]
    await assert_sound(fanout, empty.batch_id, batch.batch_id, hook.batch_id)


async def test_every_epoch_of_a_batch_tells_of_its_end(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["mended", "good"], on_close="closing.hook", key="one")
    assert (await closed(batch)).failed == 1
    await follow_up(fanout, batch)
    await batch.retry()
    assert (await closed(batch)).completed == 2
    await follow_up(fanout, batch, epoch=2)
    ends = [(payload["epoch"], payload["completed"], payload["failed"]) for _, _, payload in told(fanout)]
    assert ends == [(1, 1, 1), (2, 2, 0)]
    again = await fanout.client.submit("closing.work", ["mended", "good"], on_close="closing.hook", key="one")
    assert again.outcome == "already_done"
    assert len(told(fanout)) == 2
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 3


async def closed_by_nobody(fanout: Deployment) -> BatchHandle:
    """A batch that was closed by a worker which died before it told anybody: its hook is stored and not started."""
    batch = await fanout.client.submit("closing.work", ["good"], on_close="closing.hook", allow_unknown=True)
    row, claim_id = await batch.read(), uuid4()
    work = WorkStore(fanout.pool, timedelta(seconds=3))
    await fanout.client.store.open_batch(batch.batch_id, row.workflow_id)
    await work.claim(batch.batch_id, 1, (0, 1), 1, claim_id, uuid4())
    await work.complete(batch.batch_id, [Completion(0, claim_id, "1")], 0)
    return batch


async def test_the_start_of_a_hook_that_was_lost_is_made_up_for(fanout: Deployment) -> None:
    """By whoever asks to close the batch again, or takes its workflow up."""
    batch = await closed_by_nobody(fanout)
    database_id = await check_schema(fanout.pool)
    starter = Starter(fanout.temporal, fanout.settings.names, database_id, "the test")
    activities = BatchActivities(fanout.client.store, database_id, 3, fanout.settings.names, starter)
    request = CloseRequest(batch_id=batch.batch_id, database_id=database_id, epoch=1)
    hook = fanout.temporal.get_workflow_handle(f"fanout/closing.hook/{batch.batch_id}/1/closed")
    for _ in range(3):
        assert (await ActivityEnvironment().run(activities.close_batch, request)).status == "completed"
        assert (await hook.describe()).status == WorkflowExecutionStatus.RUNNING
        await hook.terminate()
    await start_worker(fanout, handlers=HANDLERS)
    assert (await follow_up(fanout, batch)).completed == 1
    assert len(told(fanout)) == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2
    await ActivityEnvironment().run(activities.close_batch, request)
    assert (await hook.describe()).status == WorkflowExecutionStatus.COMPLETED


async def test_the_command_line_takes_the_same_options(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    items = fanout.folder / "items.jsonl"
    items.write_text('"good"\n"bad"\n')
    options = ("--max-failures", "50%", "--on-budget", "fail", "--deadline", "2h", "--on-close", "closing.hook")
    call = ("submit", "closing.work", "--items", str(items), *options, "--json")
    assert (await asyncio.to_thread(fanout.run, *call, "--dry-run")).returncode == 0
    done = await asyncio.to_thread(fanout.run, *call, "--wait")
    assert done.returncode == 1, done.stderr
    status = json.loads(done.stdout.splitlines()[-1])
    assert (status["status"], status["failed"], status["max_failures"]) == ("completed_with_failures", 1, "50%")
    assert status["deadline_at"] is not None
    await follow_up(fanout, await fanout.client.get(status["batch_id"]))
    done = await asyncio.to_thread(fanout.run, *call[:4], "--on-close", "closing.nobody")
    assert (done.returncode, "closing.nobody" in done.stderr) == (2, True)
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2
