"""What the sweeper's tests share: passes in this process, runs ended by hand, and what was done to a batch."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio.api.command.v1 import (
    Command,
    CompleteWorkflowExecutionCommandAttributes,
    FailWorkflowExecutionCommandAttributes,
)
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import CommandType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
    TerminateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fanout import BatchHandle
from fanout.client.submitting import SubmitOptions, store_batch
from fanout.client.sweeping import Sweeping, SweepReport
from fanout.metrics import NO_METERS, Meters
from fanout.store import FIRST, QuietBatch, SweepStore
from tests.support import Deployment, WorkerProcess, eventually

EVERY_SECONDS = 2.0
STALL_SECONDS = 3.0
PASSES_APART_SECONDS = 25.0
"""Two passes of the tests' own that lie nearer to each other do not agree, however slow the machine is."""
SWEPT = {"FANOUT_SWEEP_EVERY_SECONDS": f"{EVERY_SECONDS:g}", "FANOUT_STALL_AFTER_SECONDS": f"{STALL_SECONDS:g}"}
# For workers of tests that make the passes themselves.
UNSWEPT = {"FANOUT_SWEEP_EVERY_SECONDS": "86400"}


async def start_worker(
    fanout: Deployment, *options: str, handlers: str = "tests.handlers.cases", **settings: str
) -> WorkerProcess:
    """A worker with handlers that keep a ledger of their starts, and with quick passes unless told otherwise."""
    chosen = {**SWEPT, "FANOUT_TEST_LEDGER": str(fanout.folder), **settings}
    return await fanout.start_worker(*options, handlers=handlers, **chosen)


async def sweeper(
    fanout: Deployment,
    store: type[SweepStore] = SweepStore,
    *,
    temporal: Client | None = None,
    limit_seconds: float | None = None,
    meters: Meters = NO_METERS,
) -> Sweeping:
    """A sweeper in this process, with the tests' short interval."""
    settings = fanout.settings.with_values({"sweep_every_seconds": EVERY_SECONDS, "stall_after_seconds": STALL_SECONDS})
    client = fanout.client
    made = Sweeping(client.store, temporal or client.temporal, client.starter, settings, meters)
    made.apart_seconds = PASSES_APART_SECONDS
    made._sweeps = store(fanout.pool, timedelta(seconds=settings.heartbeat_seconds))
    if limit_seconds is not None:
        made._limit_seconds = limit_seconds
    return made


async def quiet_batches(fanout: Deployment) -> list[QuietBatch]:
    """Every open batch as a pass sees it."""
    sweeps = SweepStore(fanout.pool, timedelta(seconds=fanout.settings.heartbeat_seconds))
    start = await sweeps.begin_pass(timedelta(0))
    return await sweeps.list_quiet_batches(FIRST, 100, start.began_at, timedelta(0))


async def quiet(fanout: Deployment, seconds: float = 60.0) -> None:
    """As if nothing had happened to any batch, and no pass been made, for that long."""
    past = timedelta(seconds=seconds)
    await fanout.pool.execute("update fanout.progress set progress_at = progress_at - $1::interval", past)
    await fanout.pool.execute(
        "update fanout.batches set created_at = created_at - $1::interval, started_at = started_at - $1::interval", past
    )


async def later(fanout: Deployment, seconds: float = PASSES_APART_SECONDS) -> None:
    """As if all that passes have noted had been noted that much earlier."""
    past = timedelta(seconds=seconds)
    await fanout.pool.execute(
        "update fanout.sweeps set since = since - $1::interval, found_at = found_at - $1::interval", past
    )


async def two_passes(fanout: Deployment, sweeping: Sweeping) -> tuple[SweepReport, SweepReport]:
    """Two passes that lie far enough apart to agree."""
    first = await sweeping.run_pass()
    await later(fanout)
    return first, await sweeping.run_pass()


async def started_alone(fanout: Deployment, total: int = 3, handler: str = "case.type") -> BatchHandle:
    """A batch with a run that no worker will go on with, quiet for a minute."""
    batch = await fanout.client.submit(handler, range(total), allow_unknown=True)
    await fanout.client.store.open_batch(batch.batch_id, (await batch.read()).workflow_id)
    await quiet(fanout)
    return batch


async def stored_alone(fanout: Deployment, total: int = 3, handler: str = "case.type") -> BatchHandle:
    """A batch whose client died between commit and start."""
    options = SubmitOptions(handler)
    limit = fanout.settings.max_payload_bytes
    batch_id, _ = await store_batch(fanout.client.store, fanout.settings.names, options, range(total), limit)
    return BatchHandle(fanout.client, batch_id)


async def run_of(batch: BatchHandle) -> WorkflowExecution:
    return WorkflowExecution(workflow_id=(await batch.read()).workflow_id)


async def terminate(fanout: Deployment, batch: BatchHandle, reason: str, identity: str = "an operator") -> None:
    await fanout.temporal.workflow_service.terminate_workflow_execution(
        TerminateWorkflowExecutionRequest(
            namespace=fanout.temporal.namespace,
            workflow_execution=await run_of(batch),
            reason=reason,
            identity=identity,
        )
    )


async def request_deletion(fanout: Deployment, batch: BatchHandle) -> None:
    await fanout.temporal.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=fanout.temporal.namespace, workflow_execution=await run_of(batch))
    )


async def delete_run(fanout: Deployment, batch: BatchHandle) -> None:
    """Deletes the batch's run and waits until the server has forgotten it."""
    handle = fanout.temporal.get_workflow_handle((await run_of(batch)).workflow_id)
    await request_deletion(fanout, batch)

    async def gone() -> bool:
        try:
            await handle.describe()
        except RPCError as error:
            return error.status == RPCStatusCode.NOT_FOUND
        return False

    await eventually(gone)


async def _poll(fanout: Deployment) -> bytes:
    """Takes up a workflow task as a worker would; answers its token."""
    answer = await fanout.temporal.workflow_service.poll_workflow_task_queue(
        PollWorkflowTaskQueueRequest(
            namespace=fanout.temporal.namespace,
            task_queue=TaskQueue(name=fanout.settings.names.task_queue),
            identity="the test",
        ),
        timeout=timedelta(seconds=60),
    )
    assert answer.task_token, "no workflow task came"
    return answer.task_token


async def end_run(fanout: Deployment, command: str) -> None:
    """Ends the one run that waits for a worker, as "completed" or as "failed"."""
    if command == "failed":
        failure = Failure(message="broken", application_failure_info=ApplicationFailureInfo(type="Broken"))
        ending = Command(
            command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
            fail_workflow_execution_command_attributes=FailWorkflowExecutionCommandAttributes(failure=failure),
        )
    else:
        ending = Command(
            command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
            complete_workflow_execution_command_attributes=CompleteWorkflowExecutionCommandAttributes(),
        )
    await fanout.temporal.workflow_service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace=fanout.temporal.namespace, task_token=await _poll(fanout), commands=[ending], identity="the test"
        )
    )


async def fail_task(fanout: Deployment) -> None:
    """Fails one workflow task, as a worker with broken code would."""
    await fanout.temporal.workflow_service.respond_workflow_task_failed(
        RespondWorkflowTaskFailedRequest(
            namespace=fanout.temporal.namespace,
            task_token=await _poll(fanout),
            failure=Failure(message="broken"),
            identity="the test",
        )
    )


async def run_status(fanout: Deployment, batch: BatchHandle) -> str:
    """What Temporal says of the batch's latest run, once it is closed."""
    handle = fanout.temporal.get_workflow_handle((await batch.read()).workflow_id)

    async def ended() -> str:
        description = await handle.describe()
        assert description.status is not None
        return "" if description.status.name == "RUNNING" else description.status.name

    return await eventually(ended)


async def told(fanout: Deployment, batch: BatchHandle, *kinds: str) -> list[dict[str, Any]]:
    """The data of the sweeper's events of a batch."""
    found = await fanout.client.store.read_events(batch.batch_id, 0)
    wanted = kinds or ("swept", "stalled", "slow")
    return [{"kind": event["kind"], **event["data"]} for event in found if event["kind"] in wanted]


async def passes_finished(fanout: Deployment, number: int) -> None:
    """Returns once the sweeper of a worker has finished that many passes more."""
    query = "select began_at from fanout.last_sweep"
    for _ in range(number):
        before = await fanout.pool.fetchval(query)

        async def another(before: Any = before) -> bool:
            return bool(await fanout.pool.fetchval(query) != before)

        await eventually(another)


async def closed(batch: BatchHandle, seconds: float = 90) -> Any:
    return await asyncio.wait_for(batch.wait(), seconds)
