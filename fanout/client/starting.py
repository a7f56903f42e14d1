"""Starts batches' workflows, so that no start is ever swallowed by a run that is about to end."""

import logging
from datetime import timedelta
from uuid import UUID

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.service import RPCError, RPCStatusCode

from fanout.contracts import (
    FAILED_ATTRIBUTE,
    HANDLER_ATTRIBUTE,
    KEY_ATTRIBUTE,
    STATUS_ATTRIBUTE,
    TOTAL_ATTRIBUTE,
    BatchStart,
    BatchWorkflow,
)
from fanout.errors import ServerUnreachable
from fanout.logs import about
from fanout.markdown import code, summary
from fanout.names import CHANGED_SIGNAL, Names
from fanout.points import FaultPoint, FaultPoints, after
from fanout.store import BatchRow
from fanout.tracing import NO_TRACING, Tracing

log = logging.getLogger("fanout.client")

START_SECONDS = timedelta(seconds=20)
# A worker that dies with a workflow task in hand holds its batch up for this long; one that is short of processor time
# and cannot replay a workflow within it would never get on.
LONGEST_TASK_TIMEOUT = timedelta(seconds=10)
SHORTEST_TASK_TIMEOUT = timedelta(seconds=5)
KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
INT = IndexedValueType.INDEXED_VALUE_TYPE_INT
SEARCH_ATTRIBUTES = {
    HANDLER_ATTRIBUTE.name: KEYWORD,
    KEY_ATTRIBUTE.name: KEYWORD,
    STATUS_ATTRIBUTE.name: KEYWORD,
    TOTAL_ATTRIBUTE.name: INT,
    FAILED_ATTRIBUTE.name: INT,
}


async def register_search_attributes(temporal: Client) -> None:
    """Registers Fanout's search attributes; repeating it is harmless. Raises RPCError where that is not allowed."""
    await temporal.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=temporal.namespace, search_attributes=SEARCH_ATTRIBUTES)
    )


def _lost_answer() -> RPCError:
    return RPCError("the answer was lost at a fault point", RPCStatusCode.UNAVAILABLE, b"")


def _details(batch: BatchRow) -> str:
    """What the Web UI shows of a batch for good."""
    facts = {"title": batch.title, "handler": batch.handler, "key": batch.key, "batch": str(batch.id)}
    lines = [f"- {name}: {code(value)}" for name, value in facts.items() if value is not None]
    return "\n".join([*lines, f"- items: {batch.total:,}"])


class Starter:
    """Starts and wakes the workflows of one deployment in one namespace."""

    def __init__(
        self,
        temporal: Client,
        names: Names,
        database_id: UUID,
        chosen_by: str,
        points: FaultPoints | None = None,
        stale_after: timedelta = LONGEST_TASK_TIMEOUT,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self._temporal = temporal
        # As long as a dead worker's items wait anyway.
        self._task_timeout = max(SHORTEST_TASK_TIMEOUT, min(LONGEST_TASK_TIMEOUT, stale_after))
        self._names = names
        self.database_id = database_id
        self._chosen_by = chosen_by
        self._searchable = True
        self._points = points

    async def start(self, batch: BatchRow) -> None:
        """Starts the batch's workflow, or signals the one that runs: whichever it is, it then looks at the row."""
        try:
            await self._start(batch)
        except RPCError as error:
            cause = (
                f"{error.message or error.status.name}; batch {batch.id} is stored as {batch.handler}/{batch.key}, "
                f"and the same submit with that key starts it"
            )
            address = self._temporal.service_client.config.target_host
            raise ServerUnreachable("Temporal", address, self._chosen_by, cause) from error

    @after(FaultPoint.WORKFLOW_STARTED, _lost_answer)
    async def _start(self, batch: BatchRow) -> None:
        # Whoever starts it later, a sweeper for instance, continues the trace of its submit.
        with self._tracing.continuing(batch.options.get("traceparent")):
            if self._searchable:
                try:
                    return await self._signal_with_start(batch, self._attributes(batch))
                except RPCError as error:
                    if error.status != RPCStatusCode.INVALID_ARGUMENT:
                        raise
            await self._signal_with_start(batch, TypedSearchAttributes.empty)
            # Of starts that were refused at once the first alone says so.
            if self._searchable:
                self._searchable = False
                log.warning(
                    "search attributes are not registered (`python starter.py migrate` does it); starting without"
                )

    async def _signal_with_start(self, batch: BatchRow, attributes: TypedSearchAttributes) -> None:
        await self._temporal.start_workflow(
            BatchWorkflow.run,
            BatchStart(batch_id=batch.id, database_id=self.database_id, handler=batch.handler, key=batch.key),
            id=batch.workflow_id,
            task_queue=self._names.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.UNSPECIFIED,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            start_signal=CHANGED_SIGNAL,
            static_summary=summary(batch.title or f"{batch.handler} {batch.key}"),
            static_details=_details(batch),
            search_attributes=attributes,
            task_timeout=self._task_timeout,
            rpc_timeout=START_SECONDS,
        )

    def _attributes(self, batch: BatchRow) -> TypedSearchAttributes:
        return TypedSearchAttributes(
            [
                SearchAttributePair(HANDLER_ATTRIBUTE, batch.handler),
                SearchAttributePair(KEY_ATTRIBUTE, batch.key),
                SearchAttributePair(STATUS_ATTRIBUTE, batch.status.value),
                SearchAttributePair(TOTAL_ATTRIBUTE, batch.total),
                SearchAttributePair(FAILED_ATTRIBUTE, batch.failed),
            ]
        )

    async def request_cancel(self, batch: BatchRow, reason: str | None) -> bool:
        """Lets the batch's run end as Canceled; False when no run is there. The row has decided already."""
        try:
            await self._temporal.get_workflow_handle(batch.workflow_id).cancel(
                reason=reason or "", rpc_timeout=START_SECONDS
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            fields = about(batch.id, handler=batch.handler, key=batch.key)
            log.warning("the workflow was not told of the cancel: %s", error.status.name, extra=fields)
        return True
