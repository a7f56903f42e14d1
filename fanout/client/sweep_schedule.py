"""The schedule that ticks the sweeper, asserted by every worker."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from fanout.client.starting import START_SECONDS
from fanout.contracts import SweepStart, SweepTickWorkflow
from fanout.settings import Settings

# Passes that were missed while a server was away say nothing that the next one would not.
CATCH_UP = timedelta(seconds=10)

log = logging.getLogger("fanout.sweeper")


async def describe_schedule(temporal: Client, server_id: str) -> ScheduleDescription | None:
    """A schedule as it is, or None where there is none: a list may name what was deleted a moment ago."""
    try:
        return await temporal.get_schedule_handle(server_id).describe(rpc_timeout=START_SECONDS)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


class SweepSchedule:
    """One schedule a deployment, under a fixed id. An operator's pause and note stay as they are."""

    def __init__(self, temporal: Client, settings: Settings, database_id: UUID) -> None:
        self._temporal = temporal
        self._names = settings.names
        self._every = timedelta(seconds=settings.sweep_every_seconds)
        self._start = SweepStart(
            database_id=database_id,
            deployment=settings.names.deployment,
            limit_seconds=settings.sweep_limit_seconds,
        )

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Asserts the schedule now and every interval, for the block: a Temporal that was wiped has none."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            try:
                await self.assert_it()
            except RPCError as error:
                log.warning("the sweeper's schedule could not be looked at: %s", error.message or error.status.name)
            except Exception:
                # Nothing that may end the loop: no batch would ever be healed again.
                log.exception("the sweeper's schedule could not be looked at")
            await asyncio.sleep(self._every.total_seconds())

    async def read(self) -> ScheduleDescription | None:
        """The schedule as it is, or None where there is none; raises RPCError."""
        return await describe_schedule(self._temporal, self._names.sweeper)

    async def is_of_this_database(self, found: Schedule) -> bool:
        """Whether its passes are this database's."""
        if not isinstance(found.action, ScheduleActionStartWorkflow):
            return False
        start = await self._start_of(found.action)
        return start is not None and start.database_id == self._start.database_id

    async def assert_it(self) -> None:
        """Creates the schedule where it is missing, and updates one that ticks otherwise; repeating it is harmless."""
        found = await self.read()
        if found is None:
            await self._create()
        elif await self._differs(found.schedule):
            await self._update(self._temporal.get_schedule_handle(self._names.sweeper))

    async def _create(self) -> None:
        # Another worker may have been faster.
        with suppress(ScheduleAlreadyRunningError):
            await self._temporal.create_schedule(self._names.sweeper, self._wanted, rpc_timeout=START_SECONDS)
            log.info("the sweeper is scheduled every %g s", self._every.total_seconds())

    async def _update(self, handle: ScheduleHandle) -> None:
        wanted = self._wanted

        def change(given: ScheduleUpdateInput) -> ScheduleUpdate:
            found = given.description.schedule
            return ScheduleUpdate(replace(found, spec=wanted.spec, policy=wanted.policy, action=wanted.action))

        await handle.update(change, rpc_timeout=START_SECONDS)
        log.warning("the sweeper's schedule was changed: every %g s", self._every.total_seconds())

    @property
    def _wanted(self) -> Schedule:
        return Schedule(
            action=ScheduleActionStartWorkflow(
                SweepTickWorkflow.run,
                self._start,
                id=self._names.sweep_tick,
                task_queue=self._names.task_queue,
                execution_timeout=timedelta(seconds=self._start.limit_seconds),
                static_summary="starts the sweeper",
            ),
            spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=self._every)]),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
        )

    async def _differs(self, found: Schedule) -> bool:
        wanted, action = self._wanted, found.action
        assert isinstance(wanted.action, ScheduleActionStartWorkflow)
        if not isinstance(action, ScheduleActionStartWorkflow) or action.workflow != wanted.action.workflow:
            return True
        if (found.spec, found.policy, action.task_queue) != (wanted.spec, wanted.policy, wanted.action.task_queue):
            return True
        return await self._start_of(action) != self._start

    async def _start_of(self, action: ScheduleActionStartWorkflow) -> SweepStart | None:
        try:
            [start] = await self._temporal.data_converter.decode(action.args, [SweepStart])
        except Exception:
            # Another version's, or somebody else's: it is to be replaced.
            return None
        return start if isinstance(start, SweepStart) else None
