"""The activity of the sweeper: one pass over the batches of this worker's database."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.ranges import refuse_other_database
from fanout.client.sweeping import Sweeping
from fanout.contracts import SweepOutcome, SweepStart
from fanout.store import OUTAGE

UNFINISHED: tuple[type[BaseException], ...] = (*OUTAGE, RPCError)


class SweepActivities:
    """Run as a local activity: a pass must not queue behind the items of batches, which may be what hangs."""

    def __init__(self, sweeping: Sweeping, database_id: UUID) -> None:
        self.database_id = database_id
        self._sweeping = sweeping

    @activity.defn
    async def sweep(self, start: SweepStart) -> SweepOutcome:
        """One pass. Safe to repeat; what went wrong is told by the name of its class alone."""
        refuse_other_database(self, start)
        try:
            report = await self._sweeping.run_pass()
        except UNFINISHED as error:
            raise ApplicationError("the pass was not finished", type=type(error).__name__) from None
        return SweepOutcome(examined=report.examined, healed=len(report.healed), left_alone=len(report.left_alone))

    @property
    def all(self) -> list[Callable[..., Any]]:
        """Every activity of this class, for the worker."""
        return [self.sweep]
