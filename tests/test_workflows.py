"""The workflows themselves: replay, the smallest cache, resets, and what the Web UI shows."""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from fanout.client import BatchHandle
from fanout.contracts import BatchWorkflow, SweepTickWorkflow
from fanout.store.audit import count_recorded_twice, install_audit
from tests.support import Deployment, eventually
from workflows.batch import Batch
from workflows.shard import Shard
from workflows.sweeper import Sweeper, SweepTick

DEFINITION = "__temporal_workflow_definition"
HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def replayer() -> Replayer:
    return Replayer(workflows=[Batch, Shard, Sweeper, SweepTick], data_converter=pydantic_data_converter)


@pytest.mark.parametrize("name", [path.stem for path in HISTORIES])
async def test_recorded_histories_replay(name: str) -> None:
    texts = {path.stem: path.read_text() for path in HISTORIES}
    started = json.loads(texts[name])["events"][0]["workflowExecutionStartedEventAttributes"]
    history = WorkflowHistory.from_json(started["workflowId"], texts[name])
    if name.startswith("bad-"):
        with pytest.raises(workflow.NondeterminismError, match="TMPRL1100"):
            await replayer().replay_workflow(history)
    else:
        await replayer().replay_workflow(history)


def test_there_are_histories_of_every_workflow_and_a_bad_one() -> None:
    assert {path.stem.split("-")[0] for path in HISTORIES} >= {"batch", "shard", "sweeper", "tick", "bad"}


async def test_everything_replays_when_nothing_is_cached(fanout: Deployment) -> None:
    await fanout.start_worker(FANOUT_WORKFLOW_CACHE="0")
    batch = await fanout.client.submit("test.flaky", [0] * 5_400 + [1, 2] * 50)
    status = await asyncio.wait_for(batch.wait(), 120)
    assert (status.status, status.completed) == ("completed", 5_500)


async def test_a_workflow_that_gets_no_processor_is_not_taken_for_a_deadlock(fanout: Deployment) -> None:
    """The SDK would break it off in the middle, and might never get it out of that worker again."""
    worker = await fanout.start_worker(handlers="tests.handlers.starved")
    batch = await fanout.client.submit("starved.echo", range(3))
    assert (await asyncio.wait_for(batch.wait(), 60)).completed == 3
    assert "deadlock" not in worker.log.read_text().lower()


async def first_task(fanout: Deployment, workflow_id: str) -> int:
    """The id of the first completed workflow task: a point that every run can be reset to."""
    async for event in fanout.temporal.get_workflow_handle(workflow_id).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return int(event.event_id)
    raise AssertionError("no workflow task was completed")


async def reset(fanout: Deployment, workflow_id: str) -> None:
    """What the Web UI's Reset does."""
    await fanout.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=fanout.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            workflow_task_finish_event_id=await first_task(fanout, workflow_id),
            reason="an operator's reset",
            request_id=workflow_id,
        )
    )


async def settled(batch: BatchHandle, number: int) -> bool:
    return (await batch.progress()).settled >= number


async def check_closed(fanout: Deployment, batch: BatchHandle, total: int) -> None:
    status = await asyncio.wait_for(batch.wait(), 90)
    assert (status.status, status.completed) == ("completed", total)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    await eventually(lambda: ended(fanout, status.workflow_id))


async def ended(fanout: Deployment, workflow_id: str) -> bool:
    description = await fanout.temporal.get_workflow_handle(workflow_id).describe()
    assert description.status is not None
    return description.status.name == "COMPLETED"


async def test_a_reset_batch_goes_on_and_settles_nothing_twice(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await fanout.start_worker("--concurrency", "20")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.1}] * 400)
    await eventually(lambda: settled(batch, 150))
    await reset(fanout, (await batch.read()).workflow_id)
    await check_closed(fanout, batch, 400)


async def test_a_reset_shard_goes_on_and_settles_nothing_twice(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await fanout.start_worker("--concurrency", "100")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.04}] * 12_000)
    await eventually(lambda: settled(batch, 3_000))
    await reset(fanout, f"{(await batch.read()).workflow_id}/1/0")
    await check_closed(fanout, batch, 12_000)


async def test_the_web_ui_finds_a_batch_and_names_its_activities(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.5}] * 3, key="ui", title="Three naps")
    workflow_id = (await batch.read()).workflow_id
    handle = fanout.temporal.get_workflow_handle(workflow_id)
    await batch.wait()
    await eventually(lambda: ended(fanout, workflow_id))
    description = await handle.describe()
    assert await description.static_summary() == "Three naps"
    assert workflow_id == "fanout/test.sleep/ui"
    query = 'FanoutHandler = "test.sleep" and FanoutKey = "ui" and FanoutStatus = "completed" and FanoutTotal = 3'
    await eventually(lambda: found(fanout, query))
    summaries = {
        pydantic_data_converter.payload_converter.from_payload(event.user_metadata.summary)
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    }
    assert summaries == {"0", "1", "2"}


async def found(fanout: Deployment, query: str) -> bool:
    return [workflow async for workflow in fanout.temporal.list_workflows(query)] != []


def test_stubs_have_the_shape_of_the_workflows() -> None:
    for stub, real in ((BatchWorkflow, Batch), (SweepTickWorkflow, SweepTick)):
        stubbed, definition = getattr(stub, DEFINITION), getattr(real, DEFINITION)
        assert stubbed.name == definition.name
        # Batch takes whatever comes, so that it can refuse it.
        assert definition.arg_types == (None if real is Batch else stubbed.arg_types)
        assert stubbed.ret_type == definition.ret_type
        assert set(stubbed.signals) <= set(definition.signals)
        assert set(stubbed.queries) <= set(definition.queries)
