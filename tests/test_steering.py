"""A person steers a batch: pause, resume, retry; by client, by command line and by the Web UI's updates."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.service import RPCError

from fanout import FanoutClient
from fanout.client import BatchHandle
from fanout.contracts import BatchStart, BatchWorkflow
from fanout.errors import InvalidRequest, InvalidSetting, UnknownBatch, UnknownItem
from fanout.store.audit import count_recorded_twice, install_audit
from tests.support import Deployment, eventually


async def settled(batch: BatchHandle, number: int) -> bool:
    return (await batch.progress()).settled >= number


async def still(batch: BatchHandle) -> bool:
    return (await batch.progress()).processing == 0


async def test_a_paused_batch_starts_nothing_until_it_is_resumed(fanout: Deployment) -> None:
    held = {"handlers": "tests.handlers.faulty", "FANOUT_TEST_LEDGER": str(fanout.folder)}
    await fanout.start_worker("--concurrency", "10", **held)
    items = ["fine"] * 40 + ["held"] * 260
    batch = await fanout.client.submit("fault.mixed", items)
    await eventually(lambda: settled(batch, 30))
    paused = await batch.pause()
    assert paused.status == "paused"
    (fanout.folder / "go").touch()
    await eventually(lambda: still(batch))
    before = await batch.progress()
    assert (await batch.pause()).status == "paused"
    joined = await fanout.client.submit("fault.mixed", items, key=before.key)
    assert joined.outcome == "joined"
    assert (await batch.progress()).settled == before.settled
    assert (await batch.resume()).status == "processing"
    assert (await asyncio.wait_for(batch.wait(), 60)).completed == 300
    kinds = [event["kind"] for event in await fanout.client.store.read_events(batch.batch_id, 0)]
    assert kinds == ["submitted", "started", "paused", "resumed", "closed"]
    assert (await batch.resume()).status == "completed"


async def test_a_batch_that_is_paused_and_resumed_in_a_hurry_goes_on(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await fanout.start_worker("--concurrency", "10")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.3}] * 120)
    await eventually(lambda: settled(batch, 5))
    for _ in range(8):
        await batch.pause()
        await batch.resume()
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.completed) == ("completed", 120)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    rows = [row async for row in batch.results()]
    assert {(row.attempts, row.crashes) for row in rows} == {(0, 0)}


@pytest.mark.parametrize("again", ["pause and resume", "retry"])
async def test_a_long_item_does_not_hold_up_a_batch_that_moved_on(fanout: Deployment, again: str) -> None:
    await fanout.start_worker(handlers="tests.handlers.faulty", FANOUT_TEST_LEDGER=str(fanout.folder))
    batch = await fanout.client.submit("fault.mixed", ["held", "bad"], range_size=1)
    await eventually(lambda: settled(batch, 1))
    await eventually(lambda: at_work(batch))
    if again == "retry":
        await batch.retry()
    else:
        await batch.pause()
        await eventually(lambda: ranges_ended(fanout, batch))
        await batch.retry()
        await batch.resume()
    await eventually(lambda: settled(batch, 1))
    assert await at_work(batch)
    (fanout.folder / "go").touch()
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.completed, status.failed, status.epoch) == (1, 1, 2)
    assert [(row.attempts, row.crashes) async for row in batch.results()] == [(0, 0), (1, 0)]


async def at_work(batch: BatchHandle) -> bool:
    return (await batch.progress()).processing == 1


async def ranges_ended(fanout: Deployment, batch: BatchHandle) -> bool:
    """Whether the workflow has asked its ranges to end."""
    workflow = fanout.temporal.get_workflow_handle((await batch.progress()).workflow_id)
    pending = (await workflow.describe()).raw_description.pending_activities
    return all(activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED for activity in pending)


async def test_a_batch_of_another_database_fails_its_workflow_at_once(fanout: Deployment) -> None:
    """Nothing retries for ever, and nothing spins, when every range is refused."""
    await fanout.start_worker()
    start = BatchStart(batch_id=uuid4(), database_id=uuid4(), handler="test.noop", key="elsewhere")
    handle = await fanout.temporal.start_workflow(
        BatchWorkflow.run, start, id="fanout/test.noop/elsewhere", task_queue="fanout"
    )
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), 60)


async def test_a_retry_runs_the_failed_items_of_a_closed_batch_again(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await fanout.start_worker(handlers="tests.handlers.mended")
    batch = await fanout.client.submit("test.mended", ["good", "bad", "worse"], key="mend")
    assert (await batch.wait()).failed == 2
    assert (await batch.retry(error_type="LookupError", error_code="poison")).reopened == 0
    one = await batch.retry(error_type="LookupError", error_code="permanent")
    assert (one.epoch, one.reopened) == (2, 1)
    assert (await asyncio.wait_for(batch.wait(), 60)).completed == 2
    two = await batch.retry(items=["2"])
    assert (two.epoch, two.reopened) == (3, 1)
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.completed, status.epoch) == ("completed", 3, 3)
    assert (await batch.retry()).reopened == 0
    events = await fanout.client.store.read_events(batch.batch_id, 0)
    assert [event["kind"] for event in events].count("closed") == 3
    assert len((await batch.item("1")).history) == 1
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    with pytest.raises(UnknownItem):
        await batch.retry(items=["nobody"])
    # Each of two at once is told of the epoch that it began.
    twins = await fanout.client.submit("test.mended", ["bad", "bad"])
    assert (await asyncio.wait_for(twins.wait(), 60)).failed == 2
    both = await asyncio.gather(twins.retry(items=["0"]), twins.retry(items=["1"]))
    assert sorted((each.epoch, each.reopened) for each in both) == [(2, 1), (3, 1)]


async def test_a_retry_of_an_open_batch_does_not_disturb_what_runs(fanout: Deployment) -> None:
    await fanout.start_worker("--concurrency", "10", handlers="tests.handlers.mended")
    batch = await fanout.client.submit("test.mended", ["bad", *["slow"] * 20])

    async def failed() -> bool:
        return (await batch.progress()).failed == 1

    await eventually(failed)
    assert (await batch.retry()).reopened == 1
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.completed, status.epoch) == ("completed", 21, 2)
    rows = [row async for row in batch.results()]
    assert {(row.attempts, row.crashes) for row in rows} == {(0, 0)}


async def test_the_updates_of_the_web_ui_steer_the_batch(fanout: Deployment) -> None:
    await fanout.start_worker("--concurrency", "5")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 2.0}] * 200)
    handle = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)
    assert await handle.execute_update("pause") == "paused"
    await eventually(lambda: still(batch))
    assert await handle.execute_update("resume") == "processing"
    assert await handle.execute_update("retry", None) == "processing"
    for update, words in (
        ("cancel", [{"junk": 1}, 2]),
        ("retry", [None, "failed", "more"]),
        ("retry", [None, "nonsense"]),
    ):
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update(update, args=words)
    assert await handle.execute_update("cancel", "enough") == "cancelling"
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.reason) == ("cancelled", "enough")
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), 60)
    description = await handle.describe()
    assert description.status is not None
    assert description.status.name == "CANCELED"


async def test_the_commands_answer_with_the_promised_shapes(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await fanout.client.submit("test.fail", [1, 2], key="shapes")
    await batch.wait()
    alike = ("--error-type", "PermanentError", "--error-code", "hopeless")
    done = await asyncio.to_thread(fanout.run, "retry", "test.fail/shapes", *alike, "--json")
    assert json.loads(done.stdout) == {"batch_id": str(batch.batch_id), "epoch": 2, "reopened": 2}
    for command in ("pause", "resume"):
        done = await asyncio.to_thread(fanout.run, command, "test.fail/shapes", "--json")
        assert (done.returncode, json.loads(done.stdout)["batch_id"]) == (0, str(batch.batch_id))


async def test_a_call_that_cannot_be_is_refused_by_name(fanout: Deployment) -> None:
    batch = await fanout.client.submit("test.noop", [1], allow_unknown=True)
    for wrong in (
        {"title": 5},
        {"title": "\ud800"},
        {"title": "two\nlines"},
        {"title": "\x1b[2Jx"},
        {"range_size": "5"},
        {"range_size": True},
    ):
        with pytest.raises(InvalidRequest):
            await fanout.client.submit("test.noop", [1], allow_unknown=True, **wrong)
    for reason in ("\0", "\ud800", "x" * 1_001, ""):
        with pytest.raises(InvalidRequest):
            await batch.cancel(reason)
    for reference in ("a/\ud800", "nope", "test.noop/" + "x" * 200, 5, None):
        with pytest.raises(UnknownBatch):
            await fanout.client.get(reference)  # type: ignore[arg-type]
    with pytest.raises(UnknownItem):
        await batch.item("\0")
    with pytest.raises(InvalidRequest):
        _ = [row async for row in batch.results("nope")]
    with pytest.raises(InvalidRequest, match="'nope' is no state of a batch"):
        _ = [found async for found in fanout.client.list(status="nope")]


async def test_a_namespace_that_does_not_exist_is_named_before_anything_is_stored(fanout: Deployment) -> None:
    missing = replace(fanout.servers, temporal={**fanout.servers.temporal, "namespace": "nope"})
    with pytest.raises(InvalidSetting, match="nope"):
        async with FanoutClient.connect(fanout.settings, servers=missing):
            pass


async def test_where_no_search_attributes_are_registered_starts_go_without(
    fanout: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those that are refused at the same moment; it is said once."""
    name = f"bare-{uuid4().hex[:8]}"
    await fanout.temporal.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86_400))
    )
    bare = replace(fanout.servers, temporal={**fanout.servers.temporal, "namespace": name})

    async def known() -> bool:
        temporal = await Client.connect(fanout.servers.temporal["target_host"], namespace=name)
        with suppress(RPCError):
            return (await temporal.count_workflows()).count == 0
        return False

    await eventually(known)
    async with FanoutClient.connect(fanout.settings, servers=bare) as client:
        batches = [client.submit("test.noop", [number], allow_unknown=True) for number in range(4)]
        for batch in await asyncio.gather(*batches):
            workflow_id = (await batch.read()).workflow_id
            assert (await client.temporal.get_workflow_handle(workflow_id).describe()).status is not None
    said = [record for record in caplog.records if "search attributes are not registered" in record.message]
    assert len(said) == 1


async def test_a_worker_outlives_errors_that_no_row_is_to_blame_for(fanout: Deployment) -> None:
    """Somebody's trigger, a migration, a full disk: rows wait, the lease goes on, and nothing is run again."""
    await fanout.start_worker("--concurrency", "10")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.1}] * 100)
    await eventually(lambda: settled(batch, 20))
    for table in ("results", "workers"):
        await fanout.pool.execute(BOOM.format(table=table))
    await eventually(lambda: silent(fanout))
    for table in ("results", "workers"):
        await fanout.pool.execute(f"drop trigger boom on fanout.{table}")
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.completed) == ("completed", 100)
    rows = [row async for row in batch.results()]
    assert {(row.attempts, row.crashes) for row in rows} == {(0, 0)}


BOOM = """
create or replace function public.boom() returns trigger language plpgsql as
    $$ begin raise exception 'boom'; end $$;
create trigger boom before update on fanout.{table} for each row execute function public.boom();
"""


async def silent(fanout: Deployment) -> bool:
    """Whether the lease was not renewed for a while, yet not for so long that it is lost."""
    return bool(
        await fanout.pool.fetchval("select clock_timestamp() - max(seen_at) > interval '2 s' from fanout.workers")
    )
