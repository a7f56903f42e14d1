"""The sweeper's second witness: what Temporal says of the run that a batch should have."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType, TaskQueueType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fanout.client.starting import START_SECONDS
from fanout.contracts import BatchStart
from fanout.names import Names
from fanout.store import QuietBatch

# Whom the server names as the one that terminated a run: at a limit, or because the run is being deleted.
SERVER_IDENTITY = "history-service"
REASON_CHARACTERS = 1_000
NEWEST_EVENTS = 20


class Finding(StrEnum):
    """What became of a batch's run."""

    RUNNING = "running"
    PAUSED = "paused"
    NOT_FOUND = "not_found"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"
    TERMINATED = "terminated"
    TERMINATED_BY_SERVER = "terminated_by_server"
    OTHER_BATCH = "other_batch"
    OTHER_DATABASE = "other_database"


_BY_STATUS = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING: Finding.RUNNING,
    # The latest run of an id is never one that has continued; between two looks it may seem so.
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: Finding.RUNNING,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_PAUSED: Finding.PAUSED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: Finding.COMPLETED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED: Finding.FAILED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED: Finding.CANCELED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: Finding.TIMED_OUT,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED: Finding.TERMINATED,
}
ALIVE = frozenset({Finding.RUNNING, Finding.PAUSED})


@dataclass(frozen=True, slots=True)
class Sighting:
    """What Temporal says; `run_id` is given where that run is this batch's, `reason` where somebody terminated it."""

    finding: Finding
    evidence: dict[str, Any]
    run_id: str | None = None
    task_attempt: int = 0
    reason: str | None = None


class Witness:
    """Asks Temporal. Every answer costs one call, two where the run is not known yet, three where it was terminated."""

    def __init__(self, temporal: Client, names: Names, database_id: UUID) -> None:
        self._temporal = temporal
        self._names = names
        self._database_id = database_id

    async def count_pollers(self) -> int:
        """How many poll for workflow tasks, by what the server has seen in the last minutes; raises RPCError."""
        answer = await self._temporal.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._temporal.namespace,
                task_queue=TaskQueue(name=self._names.task_queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=START_SECONDS,
        )
        return len(answer.pollers)

    async def ask(self, batch: QuietBatch) -> Sighting:
        """What became of the run under the batch's workflow id; raises RPCError when the server does not tell."""
        try:
            seen = await self._describe(batch.workflow_id)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return Sighting(Finding.NOT_FOUND, {"status": Finding.NOT_FOUND.value})
        finding = _BY_STATUS[seen.workflow_execution_info.status]
        evidence = _evidence(finding, seen)
        run_id = seen.workflow_execution_info.execution.run_id
        if run_id != batch.run_id:
            other = await self._whose(batch.id, batch.workflow_id, run_id)
            if other is not None:
                # Once such a run is over, it keeps this batch from nothing.
                return Sighting(other if finding in ALIVE else Finding.NOT_FOUND, {**evidence, "run_of": other.value})
        if finding is Finding.TERMINATED:
            return await self._who_terminated(batch.workflow_id, run_id, evidence)
        return Sighting(finding, evidence, run_id, seen.pending_workflow_task.attempt)

    async def read_times(self, batch_id: UUID, workflow_id: str) -> tuple[datetime, datetime | None] | None:
        """When the batch's run began and ended, by the server's clock; None if it is not there or not the first one."""
        try:
            info = (await self._describe(workflow_id)).workflow_execution_info
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return None
        run_id = info.execution.run_id
        if info.first_run_id != run_id or await self._whose(batch_id, workflow_id, run_id) is not None:
            return None
        ended = info.close_time.ToDatetime(UTC) if info.HasField("close_time") else None
        return info.start_time.ToDatetime(UTC), ended

    async def is_running(self, workflow_id: str) -> bool:
        """Whether a run has that id now; visibility may tell of one that has ended."""
        try:
            seen = await self._describe(workflow_id)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return False
        return _BY_STATUS[seen.workflow_execution_info.status] in ALIVE

    async def read_task_failure(self, workflow_id: str, run_id: str) -> str | None:
        """Why the run's workflow task failed last, by its history: only the first of a row of failures is written."""
        answer = await self._temporal.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=self._temporal.namespace,
                execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
                maximum_page_size=NEWEST_EVENTS,
            ),
            timeout=START_SECONDS,
        )
        for event in answer.history.events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                return event.workflow_task_failed_event_attributes.failure.message[:REASON_CHARACTERS]
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                return "it takes longer than its time limit"
        return None

    async def _describe(self, workflow_id: str) -> DescribeWorkflowExecutionResponse:
        # Not the SDK's own method: that one fails on a run that was paused in Temporal.
        return await self._temporal.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=self._temporal.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
            ),
            timeout=START_SECONDS,
        )

    async def _whose(self, batch_id: UUID, workflow_id: str, run_id: str) -> Finding | None:
        """None if the run was started for this batch. Its input says so, which no way to start it can do without."""
        event = await self._event(workflow_id, run_id, HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
        start = await self._input(event.workflow_execution_started_event_attributes.input)
        if start is not None and start.database_id != self._database_id:
            return Finding.OTHER_DATABASE
        return None if start is not None and start.batch_id == batch_id else Finding.OTHER_BATCH

    async def _input(self, given: Payloads) -> BatchStart | None:
        try:
            [start] = await self._temporal.data_converter.decode(given.payloads, [BatchStart])
        except Exception:
            # Whatever it was started with, it names no batch.
            return None
        return start if isinstance(start, BatchStart) else None

    async def _who_terminated(self, workflow_id: str, run_id: str, evidence: dict[str, Any]) -> Sighting:
        event = await self._event(workflow_id, run_id, HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
        said = event.workflow_execution_terminated_event_attributes
        reason = said.reason.replace("\0", "")[:REASON_CHARACTERS]
        last = {"last_event": EventType.Name(event.event_type), "identity": said.identity, "reason": reason}
        by_server = said.identity == SERVER_IDENTITY
        finding = Finding.TERMINATED_BY_SERVER if by_server else Finding.TERMINATED
        return Sighting(finding, {**evidence, **last}, run_id, reason=reason or "terminated in Temporal")

    async def _event(self, workflow_id: str, run_id: str, which: HistoryEventFilterType.ValueType) -> HistoryEvent:
        """A run's first event, or its last one."""
        answer = await self._temporal.workflow_service.get_workflow_execution_history(
            GetWorkflowExecutionHistoryRequest(
                namespace=self._temporal.namespace,
                execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
                maximum_page_size=1,
                history_event_filter_type=which,
            ),
            timeout=START_SECONDS,
        )
        return answer.history.events[0]


def _evidence(finding: Finding, seen: DescribeWorkflowExecutionResponse) -> dict[str, Any]:
    info = seen.workflow_execution_info
    found: dict[str, Any] = {"status": finding.value, "run_id": info.execution.run_id}
    if info.HasField("close_time"):
        return {**found, "closed_at": info.close_time.ToDatetime(UTC).isoformat()}
    waits = sum(activity.HasField("next_attempt_schedule_time") for activity in seen.pending_activities)
    counts = {"pending_activities": len(seen.pending_activities), "in_back_off": waits}
    return {
        **found,
        **counts,
        "pending_shards": len(seen.pending_children),
        "task_attempt": seen.pending_workflow_task.attempt,
    }
