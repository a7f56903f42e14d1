"""A schedule as Temporal's server keeps it, in the form that it gives back, so that the two can be compared."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Memo, Payloads, WorkflowType
from temporalio.api.enums.v1 import ScheduleOverlapPolicy
from temporalio.api.schedule.v1 import (
    IntervalSpec,
    ScheduleAction,
    SchedulePolicies,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.api.schedule.v1 import Schedule as Form
from temporalio.api.sdk.v1 import UserMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.converter import DataConverter

from fanout.client.cron import read_cron
from fanout.client.schedule import Schedule
from fanout.names import Names

BATCH = "Batch"
MARK = "fanout"
"""The name in a schedule's memo under which the deployment stands that made it."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Makes such forms for one deployment."""

    names: Names
    converter: DataConverter

    async def of(self, schedule: Schedule) -> Form:
        """The schedule as it is to stand on the server."""
        note = schedule.note or ""
        return Form(
            spec=spec_of(schedule),
            action=ScheduleAction(start_workflow=await self._start(schedule)),
            policies=policies_of(schedule),
            state=ScheduleState(paused=schedule.paused, notes=note),
        )

    async def _start(self, schedule: Schedule) -> NewWorkflowExecutionInfo:
        [summary] = await self.converter.encode([f"schedule {schedule.id}"])
        return NewWorkflowExecutionInfo(
            workflow_id=self.names.schedule_id(schedule.id),
            workflow_type=WorkflowType(name=BATCH),
            task_queue=TaskQueue(name=self.names.task_queue),
            input=Payloads(payloads=await self.converter.encode([schedule.request])),
            user_metadata=UserMetadata(summary=summary),
        )

    async def mark(self) -> Memo:
        """What tells this deployment's schedules from all others."""
        [deployment] = await self.converter.encode([self.names.deployment])
        return Memo(fields={MARK: deployment})

    async def is_ours(self, memo: Memo) -> bool:
        """Whether a schedule with that memo is this deployment's."""
        return MARK in memo.fields and await self._decode([memo.fields[MARK]]) == [self.names.deployment]

    async def same(self, one: Form, other: Form) -> bool:
        """Whether both fire at the same times, by the same policies, and start the same, pause and note aside."""
        if (one.spec, one.policies) != (other.spec, other.policies):
            return False
        ours, theirs = one.action.start_workflow, other.action.start_workflow
        if _names(ours) != _names(theirs):
            return False
        return bool(await self.request_in(one) == await self.request_in(other))

    async def request_in(self, form: Form) -> Any:
        """What its starts ask for, or None where that cannot be read."""
        found = await self._decode(form.action.start_workflow.input.payloads)
        return found[0] if len(found) == 1 else None

    async def _decode(self, payloads: Any) -> list[Any]:
        try:
            return await self.converter.decode(list(payloads))
        except Exception:
            # Somebody else's, in whatever encoding.
            return []


def _names(start: NewWorkflowExecutionInfo) -> tuple[str, ...]:
    return (start.workflow_id, start.workflow_type.name, start.task_queue.name)


def spec_of(schedule: Schedule, time_zone: str | None = None, jitter: bool = True) -> ScheduleSpec:
    """When it fires; in another time zone, or without its jitter, where that is asked for."""
    spec = ScheduleSpec(timezone_name=time_zone or schedule.time_zone)
    if schedule.interval is not None:
        spec.interval.append(IntervalSpec(interval=Duration(seconds=int(schedule.interval.total_seconds()))))
    elif schedule.cron is not None:
        when = read_cron(schedule.cron)
        if isinstance(when, IntervalSpec):
            spec.interval.append(when)
        else:
            spec.structured_calendar.append(when)
    if jitter and schedule.jitter:
        spec.jitter.FromTimedelta(schedule.jitter)
    return spec


def policies_of(schedule: Schedule) -> SchedulePolicies:
    """What happens when it fires while a batch of its last time is open, and after an outage."""
    return SchedulePolicies(
        overlap_policy=ScheduleOverlapPolicy.Value(f"SCHEDULE_OVERLAP_POLICY_{schedule.overlap.upper()}"),
        catchup_window=Duration(seconds=int(schedule.catch_up.total_seconds())),
    )
