"""The schedules of one deployment: brings a server to what is declared, and keeps off what is not ours."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.schedule.v1 import Schedule as Form
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    DeleteScheduleRequest,
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    ListSchedulesRequest,
    UpdateScheduleRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fanout.client.schedule import Schedule
from fanout.client.schedule_forms import Forms
from fanout.client.schedule_preview import Preview, Previewer
from fanout.client.starting import START_SECONDS
from fanout.errors import ForeignSchedule, InvalidRequest, InvalidSchedules, UnknownSchedule
from fanout.names import SCHEDULE_ID, Names

TRIES = 20
TRY_AGAIN_SECONDS = 0.1
PAGE = 200


class ChangeKind(StrEnum):
    """What became of a schedule."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change:
    """What an apply or a delete did to one schedule."""

    schedule_id: str
    change: ChangeKind


@dataclass(frozen=True, slots=True)
class Listed:
    """One schedule as it stands on the server; `request` is what its starts ask for."""

    schedule_id: str
    request: dict[str, Any]
    paused: bool
    note: str
    next_at: datetime | None
    last_at: datetime | None
    last_run: str | None
    missed: int
    skipped: int


class Schedules:
    """Safe to use from any number of processes at once: each call brings the server to the same state."""

    def __init__(self, temporal: Client, names: Names) -> None:
        self._temporal = temporal
        self._service = temporal.workflow_service
        self._names = names
        self._forms = Forms(names, temporal.data_converter)

    async def apply(self, schedules: Iterable[Schedule], *, prune: bool = False) -> list[Change]:
        """Creates what is missing and updates what differs from its declaration; repeating it changes nothing.

        A pause and a note stay as they are on the server. With `prune` it deletes this deployment's schedules that are
        not among these; one that was created a moment ago may be overlooked, as the server lists it a little later.
        Nobody else's schedule is touched: raises ForeignSchedule, and then nothing was changed. If the process dies
        half-way the next call does the rest.
        """
        wanted = list(schedules)
        _refuse_doubles(wanted)
        for schedule in wanted:
            await self._describe(self._names.schedule_id(schedule.id))
        changes = [Change(schedule.id, await self._apply(schedule)) for schedule in wanted]
        if prune:
            kept = {schedule.id for schedule in wanted}
            gone = [name async for name in self._own_names() if name not in kept]
            changes += [Change(name, ChangeKind.DELETED) for name in sorted(gone) if await self._delete(name)]
        return changes

    async def list(self) -> AsyncIterator[Listed]:
        """This deployment's schedules, by their ids; the sweeper's is none of them."""
        for name in sorted([name async for name in self._own_names()]):
            found = await self._describe(self._names.schedule_id(name))
            if found is not None:
                yield await self._listed(name, found)

    async def delete(self, schedule_id: str) -> Change:
        """Deletes one of this deployment's schedules. Batches that it has started go on.

        Raises UnknownSchedule, or ForeignSchedule for what somebody else made, such as the sweeper's.
        """
        if not SCHEDULE_ID.fullmatch(schedule_id):
            raise UnknownSchedule(schedule_id)
        if not await self._delete(schedule_id):
            if await self._find(schedule_id) is not None:
                raise ForeignSchedule(schedule_id)
            raise UnknownSchedule(schedule_id)
        return Change(schedule_id, ChangeKind.DELETED)

    async def preview(self, schedule: Schedule, count: int = 10) -> Preview:
        """The next times at which it would fire, by this server's own reckoning, and what may surprise about them."""
        return await Previewer(self._temporal, self._names).preview(schedule, count)

    async def _apply(self, schedule: Schedule) -> ChangeKind:
        """Looks, writes what differs, and looks again: the server drops a write that lost a race, and does not say."""
        server_id, wanted = self._names.schedule_id(schedule.id), await self._forms.of(schedule)
        change = ChangeKind.UNCHANGED
        for _ in range(TRIES):
            found = await self._describe(server_id)
            if found is None:
                if await self._create(server_id, wanted):
                    return ChangeKind.CREATED
            elif await self._forms.same(wanted, found.schedule):
                return change
            else:
                await self._update(server_id, wanted, found)
                change = ChangeKind.UPDATED
            await asyncio.sleep(TRY_AGAIN_SECONDS)
        raise InvalidRequest(f"schedule {schedule.id}: somebody else changes it again and again; apply it once more")

    async def _create(self, server_id: str, wanted: Form) -> bool:
        """False where another call was faster; raises InvalidSchedules with the server's own reason."""
        try:
            await self._service.create_schedule(
                CreateScheduleRequest(
                    namespace=self._temporal.namespace,
                    schedule_id=server_id,
                    schedule=wanted,
                    memo=await self._forms.mark(),
                    identity=self._temporal.identity,
                    request_id=str(uuid4()),
                ),
                retry=True,
                timeout=START_SECONDS,
            )
        except RPCError as error:
            if error.status == RPCStatusCode.ALREADY_EXISTS:
                return False
            raise _refused(server_id, error) from None
        return True

    async def _update(self, server_id: str, wanted: Form, found: DescribeScheduleResponse) -> None:
        """With the token of what was found, so that a pause that comes between is not lost."""
        changed = Form()
        changed.CopyFrom(wanted)
        changed.state.CopyFrom(found.schedule.state)
        try:
            await self._service.update_schedule(
                UpdateScheduleRequest(
                    namespace=self._temporal.namespace,
                    schedule_id=server_id,
                    schedule=changed,
                    conflict_token=found.conflict_token,
                    identity=self._temporal.identity,
                    request_id=str(uuid4()),
                ),
                retry=True,
                timeout=START_SECONDS,
            )
        except RPCError as error:
            # Deleted meanwhile, or changed: the next look tells.
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION):
                raise _refused(server_id, error) from None

    async def _find(self, server_id: str) -> DescribeScheduleResponse | None:
        try:
            return await self._service.describe_schedule(
                DescribeScheduleRequest(namespace=self._temporal.namespace, schedule_id=server_id),
                retry=True,
                timeout=START_SECONDS,
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _describe(self, server_id: str) -> DescribeScheduleResponse | None:
        """One of ours; raises ForeignSchedule where it is not."""
        found = await self._find(server_id)
        if found is not None and not await self._forms.is_ours(found.memo):
            raise ForeignSchedule(server_id)
        return found

    async def _delete(self, schedule_id: str) -> bool:
        """False where there is none."""
        server_id = self._names.schedule_id(schedule_id)
        if await self._describe(server_id) is None:
            return False
        try:
            await self._service.delete_schedule(
                DeleteScheduleRequest(
                    namespace=self._temporal.namespace, schedule_id=server_id, identity=self._temporal.identity
                ),
                retry=True,
                timeout=START_SECONDS,
            )
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
        return True

    async def _own_names(self) -> AsyncIterator[str]:
        request = ListSchedulesRequest(namespace=self._temporal.namespace, maximum_page_size=PAGE)
        while True:
            page = await self._service.list_schedules(request, retry=True, timeout=START_SECONDS)
            for entry in page.schedules:
                prefix, name = self._names.schedules, entry.schedule_id.removeprefix(self._names.schedules)
                if entry.schedule_id.startswith(prefix) and await self._forms.is_ours(entry.memo):
                    yield name
            if not page.next_page_token:
                return
            request.next_page_token = page.next_page_token

    async def _listed(self, name: str, found: DescribeScheduleResponse) -> Listed:
        request, info = await self._forms.request_in(found.schedule), found.info
        last = info.recent_actions[-1] if info.recent_actions else None
        state = found.schedule.state
        return Listed(
            schedule_id=name,
            request=request if isinstance(request, dict) else {},
            paused=state.paused,
            note=state.notes,
            next_at=_time(info.future_action_times[0]) if info.future_action_times and not state.paused else None,
            last_at=None if last is None else _time(last.schedule_time),
            last_run=None if last is None else last.start_workflow_result.workflow_id,
            missed=info.missed_catchup_window,
            skipped=info.overlap_skipped,
        )


def _time(at: Timestamp) -> datetime:
    return at.ToDatetime(UTC)


def _refused(server_id: str, error: RPCError) -> RPCError | InvalidSchedules:
    if error.status != RPCStatusCode.INVALID_ARGUMENT:
        return error
    return InvalidSchedules("Temporal", [(server_id, None, error.message)])


def _refuse_doubles(schedules: Iterable[Schedule]) -> None:
    seen: set[str] = set()
    for schedule in schedules:
        if schedule.id in seen:
            raise InvalidSchedules("", [(schedule.id, "id", "two schedules have it")])
        seen.add(schedule.id)
