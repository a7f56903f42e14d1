"""When a schedule will fire, as the server itself reckons it, and what may surprise about that."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import WorkflowType
from temporalio.api.schedule.v1 import Schedule as Form
from temporalio.api.schedule.v1 import ScheduleAction, ScheduleSpec, ScheduleState
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    DeleteScheduleRequest,
    ListScheduleMatchingTimesRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from fanout.client.clock_changes import SECOND, ClockChange, clock_changes
from fanout.client.schedule import Schedule
from fanout.client.schedule_forms import BATCH, spec_of
from fanout.client.schedule_warnings import Warned, about, about_clock_change, about_times
from fanout.client.starting import START_SECONDS
from fanout.errors import InvalidRequest
from fanout.names import Names

MOST_TIMES = 1_000
AHEAD = timedelta(days=400)
"""How far clock changes are looked for: each of a year."""
STEPS = (timedelta(days=2), timedelta(days=60), timedelta(days=800), timedelta(days=365 * 74))
"""How far times are looked for, wider and wider: the server answers with at most 1,000 at once."""
MARGIN = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Preview:
    """The next times of a schedule, in UTC and without jitter, and what to know about them."""

    schedule_id: str
    time_zone: str
    times: Sequence[datetime]
    warnings: Sequence[Warned]


class Previewer:
    """Asks by schedules that may start nothing and live for a moment; what a killed process leaves ends by itself."""

    def __init__(self, temporal: Client, names: Names) -> None:
        self._temporal = temporal
        self._names = names

    async def preview(self, schedule: Schedule, count: int) -> Preview:
        """Raises InvalidRequest for a count that it cannot tell."""
        if not 1 <= count <= MOST_TIMES:
            raise InvalidRequest(f"count {count} is not between 1 and {MOST_TIMES:,}")
        now = datetime.now(UTC).replace(microsecond=0)
        async with self._asked(schedule, spec_of(schedule, jitter=False)) as spec:
            times = await self._next(spec, now, count)
            changes = await self._around_changes(schedule, spec, now)
        return Preview(
            schedule.id, schedule.time_zone, times[:count], [*about(schedule), *about_times(schedule, times), *changes]
        )

    async def _next(self, asked: str, now: datetime, count: int) -> list[datetime]:
        """At least so many, or all that there are, and one more to compare with."""
        for step in STEPS:
            found = await self._times(asked, now, now + step)
            if len(found) > count:
                break
        return found

    async def _around_changes(self, schedule: Schedule, asked: str, now: datetime) -> list[Warned]:
        """What happens at each change of the clock, told from the same expression where no clock ever changes."""
        changes = list(clock_changes(ZoneInfo(schedule.time_zone), now, now + AHEAD))
        spec = spec_of(schedule, time_zone="UTC", jitter=False)
        if not changes or not spec.structured_calendar:
            return []
        async with self._asked(schedule, spec) as unchanging:
            return [
                warned
                for change in changes
                for warned in about_clock_change(change, *await self._compared(change, asked, unchanging))
            ]

    async def _compared(
        self, change: ClockChange, asked: str, unchanging: str
    ) -> tuple[list[datetime], list[datetime], list[datetime]]:
        """What `about_clock_change` takes: readings of the clock around a change, and of its whole day."""
        first, last = change.earlier - MARGIN, change.later + MARGIN
        midnight = change.earlier.replace(hour=0, minute=0, second=0)
        named = await self._readings(unchanging, first, last)
        of_day = await self._readings(unchanging, midnight, midnight + timedelta(days=1))
        reach = change.later - change.earlier + MARGIN + SECOND
        fired = await self._all_times(asked, change.at - reach, change.at + reach)
        readings = [at.astimezone(change.zone).replace(tzinfo=None) for at in fired]
        return named, [at for at in readings if first <= at < last], of_day

    async def _readings(self, unchanging: str, first: datetime, end: datetime) -> list[datetime]:
        # The server leaves the first moment out and takes the last one in.
        found = await self._all_times(unchanging, first.replace(tzinfo=UTC) - SECOND, end.replace(tzinfo=UTC) - SECOND)
        return [at.replace(tzinfo=None) for at in found]

    async def _all_times(self, asked: str, after: datetime, until: datetime) -> list[datetime]:
        """Also of a schedule that fires several times a minute."""
        found = page = await self._times(asked, after, until)
        while len(page) == MOST_TIMES:
            page = await self._times(asked, page[-1], until)
            found = found + page
        return found

    async def _times(self, asked: str, after: datetime, until: datetime) -> list[datetime]:
        answer = await self._temporal.workflow_service.list_schedule_matching_times(
            ListScheduleMatchingTimesRequest(
                namespace=self._temporal.namespace, schedule_id=asked, start_time=_stamp(after), end_time=_stamp(until)
            ),
            retry=True,
            timeout=START_SECONDS,
        )
        return [at.ToDatetime(UTC) for at in answer.start_time]

    @asynccontextmanager
    async def _asked(self, schedule: Schedule, spec: ScheduleSpec) -> AsyncIterator[str]:
        """A schedule with these times on the server, for the block; it has no action left to take."""
        service, server_id = self._temporal.workflow_service, f"{self._names.preview}{uuid4()}"
        start = NewWorkflowExecutionInfo(
            workflow_id=server_id,
            workflow_type=WorkflowType(name=BATCH),
            task_queue=TaskQueue(name=self._names.task_queue),
        )
        form = Form(spec=spec, action=ScheduleAction(start_workflow=start), state=ScheduleState(limited_actions=True))
        where: dict[str, Any] = {"namespace": self._temporal.namespace, "schedule_id": server_id}
        try:
            await service.create_schedule(
                CreateScheduleRequest(**where, schedule=form, request_id=server_id), retry=True, timeout=START_SECONDS
            )
            yield server_id
        finally:
            with suppress(RPCError):
                await service.delete_schedule(DeleteScheduleRequest(**where), timeout=START_SECONDS)


def _stamp(at: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp
