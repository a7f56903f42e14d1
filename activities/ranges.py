"""The range activity: the border between Temporal and an attempt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.attempt import Attempt
from activities.engine import Engine
from activities.waiting import RangeWaits
from fanout.contracts import BatchReference, RangeInput, RangeOutcome, SweepStart
from fanout.finishing import finish


class RangeActivities:
    """The activities that run items; one object a worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @activity.defn
    async def process_range(self, work: RangeInput) -> RangeOutcome:
        """Settles every row of a range that may be claimed now, whatever became of earlier attempts.

        Safe to repeat and to run beside another attempt: the rows decide. Raises a retryable error while open rows
        wait or are held by a live worker, and when this worker does not have the handler.
        """
        refuse_other_database(self._engine, work)
        handler = self._engine.handler(work.handler)
        if handler is None:
            raise retryable("UnknownHandler", f"this worker does not have {work.handler}", 1.0)
        attempt = self._engine.attempt(work, handler)
        async with _heartbeats(attempt, self._engine.settings.beat_seconds):
            try:
                # Cancelled by Temporal it claims no more, and settles what runs.
                return await finish(attempt.run(), on_cancel=attempt.stop)
            except RangeWaits as wait:
                raise retryable(wait.error_type, str(wait), wait.seconds) from None


@asynccontextmanager
async def _heartbeats(attempt: Attempt, seconds: float) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            # First the pause: most ranges of short items end before their first heartbeat would be due.
            await asyncio.sleep(seconds)
            activity.heartbeat(attempt.counts)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


def retryable(error_type: str, message: str, seconds: float) -> ApplicationError:
    """An error that is Temporal's way of waiting: shown in its Web UI, logged nowhere."""
    return ApplicationError(
        message,
        type=error_type,
        next_retry_delay=timedelta(seconds=max(seconds, 0.001)),
        category=ApplicationErrorCategory.BENIGN,
    )


def refuse_other_database(engine: Any, reference: BatchReference | SweepStart) -> None:
    """A batch of another database would be looked for in vain, or worse, found."""
    if reference.database_id != engine.database_id:
        raise ApplicationError(
            f"this worker's database is not {reference.database_id}", type="WrongDatabase", non_retryable=True
        )
