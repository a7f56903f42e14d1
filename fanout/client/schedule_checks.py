"""What an examination finds of schedules: several that do one thing, those whose starts fail, and the sweeper's own."""

import json
import shlex
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from temporalio.client import (
    Client,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import FailureError
from temporalio.service import RPCError, RPCStatusCode

from fanout.client.findings import Code, Finding, Severity, some
from fanout.client.starting import START_SECONDS
from fanout.client.sweep_schedule import SweepSchedule, describe_schedule
from fanout.client.why import COMMAND
from fanout.errors import shorten
from fanout.settings import Settings
from fanout.store import BatchStore

MOST_SCHEDULES = 500
LABELS = frozenset({"title", "schedule", "schedule_id"})
"""What may differ in the inputs of two schedules that do the same: words, and the schedule's own name."""
MESSAGE_CHARACTERS = 300
UNFINISHED = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW, None)
MADE_WITHIN = timedelta(seconds=10)
LATE_INTERVALS = 3
LATE_MARGIN = timedelta(seconds=30)


class ScheduleChecks:
    """Reads the schedules of the namespace; changes none."""

    def __init__(self, store: BatchStore, temporal: Client, settings: Settings, database_id: UUID) -> None:
        self._store = store
        self._temporal = temporal
        self._queue = settings.names.task_queue
        self._name = settings.names.sweeper
        self._sweeper = SweepSchedule(temporal, settings, database_id)

    async def check_schedules(self) -> list[Finding]:
        """Schedules that start the same workflow of ours with the same input, and those whose newest start failed."""
        alike: dict[tuple[str, str], list[str]] = defaultdict(list)
        failing: list[Finding] = []
        seen = 0
        async for listed in await self._temporal.list_schedules(rpc_timeout=START_SECONDS):
            if seen == MOST_SCHEDULES:
                detail = f"only {MOST_SCHEDULES:,} of the namespace's schedules were looked at"
                return [
                    *self._of_alike(alike),
                    *failing,
                    Finding(Code.NOT_CHECKED, Severity.INFO, detail, "delete what is unused"),
                ]
            seen += 1
            found = await describe_schedule(self._temporal, listed.id)
            if found is not None and (does := await self._does(found)) is not None:
                alike[does].append(found.id)
                failing += await self._failing(found)
        return [*self._of_alike(alike), *failing]

    async def _failing(self, found: ScheduleDescription) -> list[Finding]:
        """Whether the newest of its starts that has ended came to nothing; the sweeper's passes are looked at apart."""
        if found.id == self._name:
            return []
        actions = [each.action for each in reversed(found.info.recent_actions)]
        for workflow_id in [
            each.workflow_id for each in actions if isinstance(each, ScheduleActionExecutionStartWorkflow)
        ]:
            failure = await self._failure(workflow_id)
            if failure is not None:
                return [self._fails(found.id, workflow_id, failure)] if failure else []
        return []

    async def _failure(self, workflow_id: str) -> str | None:
        """Why the run failed; empty where it did not, None where it goes on or is no longer known."""
        handle = self._temporal.get_workflow_handle(workflow_id)
        try:
            status = (await handle.describe(rpc_timeout=START_SECONDS)).status
            if status in UNFINISHED:
                return None
            if status not in (WorkflowExecutionStatus.FAILED, WorkflowExecutionStatus.TIMED_OUT):
                return ""
            await handle.result(rpc_timeout=START_SECONDS)
        except WorkflowFailureError as error:
            cause = error.cause
            return (cause.message if isinstance(cause, FailureError) else str(cause)) or type(cause).__name__
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return None
        return ""

    def _fails(self, schedule_id: str, workflow_id: str, failure: str) -> Finding:
        detail = f"the newest finished start of the schedule {schedule_id}, {workflow_id}, failed: {failure}"
        fix = f"mend what the failure names; a declaration is put right by {COMMAND} schedule apply FILE"
        return Finding(Code.SCHEDULE_FAILS, Severity.WARNING, shorten(detail, MESSAGE_CHARACTERS), fix)

    async def _does(self, found: ScheduleDescription) -> tuple[str, str] | None:
        """Type and input of what it starts on our queue, unless it starts nothing."""
        action, state = found.schedule.action, found.schedule.state
        spent = state.limited_actions and state.remaining_actions == 0
        if not isinstance(action, ScheduleActionStartWorkflow) or action.task_queue != self._queue:
            return None
        if state.paused or spent:
            return None
        return str(action.workflow), sha256(await self._input(action)).hexdigest()

    async def _input(self, action: ScheduleActionStartWorkflow) -> bytes:
        try:
            given: list[Any] = await self._temporal.data_converter.decode(action.args)
            named = [_without_labels(each) for each in given]
            return json.dumps(named, sort_keys=True, default=str).encode()
        except Exception:
            # Encoded by somebody else's converter: then only what is the same to the byte is the same.
            return b"".join(payload.SerializeToString(deterministic=True) for payload in action.args)

    def _of_alike(self, alike: dict[tuple[str, str], list[str]]) -> list[Finding]:
        return [self._duplicates(kind, sorted(ids)) for (kind, _), ids in sorted(alike.items()) if len(ids) > 1]

    def _duplicates(self, kind: str, ids: list[str]) -> Finding:
        kept = self._name if self._name in ids else ids[0]
        rest = [each for each in ids if each != kept]
        delete = f"temporal schedule delete --namespace {shlex.quote(self._temporal.namespace)} --schedule-id"
        detail = f"{len(ids):,} schedules start the same {kind} with the same input: {some(ids)}"
        return Finding(
            Code.DUPLICATE_SCHEDULES,
            Severity.WARNING,
            detail,
            "; ".join(f"{delete} {shlex.quote(each)}" for each in rest[:10]),
        )

    async def check_sweeper(self) -> list[Finding]:
        """The sweeper's schedule, where there is anything to sweep, and whether passes are made."""
        workers = await self._store.list_workers()
        crew_since = min((worker.started_at for worker in workers), default=None)
        found = await self._sweeper.read()
        if found is None:
            return await self._missing(crew_since)
        if not await self._sweeper.is_of_this_database(found.schedule):
            detail = f"the schedule {self._name} is another database's: two deployments have one name"
            fix = "give each database a FANOUT_NAME or a namespace of its own"
            return [Finding(Code.SWEEPER_OF_OTHER_DATABASE, Severity.ERROR, detail, fix)]
        if found.schedule.state.paused:
            detail = f"the schedule {self._name} is paused: {found.schedule.state.note or 'without a note'}"
            fix = f"temporal schedule toggle --unpause --namespace {self._namespace} --schedule-id {self._name}"
            return [Finding(Code.SWEEPER_PAUSED, Severity.WARNING, detail, fix)]
        return await self._late(found, crew_since)

    async def _missing(self, crew_since: datetime | None) -> list[Finding]:
        now = (await self._store.health.read_server()).at
        # A worker makes it a moment after its start; without one, only open batches need it.
        wanted = now - crew_since > MADE_WITHIN if crew_since else await self._store.health.count_open() > 0
        detail = f"there is no schedule {self._name}: no batch that is left alone is brought on"
        fix = f"start a worker, which makes it; meanwhile: {COMMAND} sweep --twice"
        return [Finding(Code.SWEEPER_MISSING, Severity.WARNING, detail, fix)] if wanted else []

    @property
    def _namespace(self) -> str:
        return shlex.quote(self._temporal.namespace)

    async def _late(self, found: ScheduleDescription, crew_since: datetime | None) -> list[Finding]:
        """Whether passes could have been made for long, and were not: without a worker there is nobody to make them."""
        every = [interval.every for interval in found.schedule.spec.intervals]
        last = await self._store.sweeps.read_last_sweep()
        if crew_since is None or not every:
            return []
        changed_at = found.info.last_updated_at or found.info.created_at
        since = max(crew_since, changed_at, datetime.min.replace(tzinfo=UTC) if last is None else last.ended_at)
        now = (await self._store.health.read_server()).at
        if not is_late(now - since, every[0]):
            return []
        told = "never" if last is None else f"{last.age_seconds:,.0f} s ago"
        detail = f"the last pass of the sweeper was finished {told}; one is due every {every[0].total_seconds():g} s"
        fix = f"look at the workflow {self._name} in Temporal and at the workers' logs. {COMMAND} sweep --twice"
        return [Finding(Code.SWEEPER_LATE, Severity.WARNING, detail, fix)]


def is_late(waited: timedelta, every: timedelta) -> bool:
    """Whether a pass should have been finished within that time; each may take a while itself."""
    return waited > LATE_INTERVALS * every + LATE_MARGIN


def _without_labels(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if name not in LABELS}
    return value
