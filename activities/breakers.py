"""Breakers: how often in a row this worker saw one type of error, and the order to stop when that is too often."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from uuid import UUID

from fanout.handlers import Ending, Handler, Outcome
from fanout.logs import about
from fanout.store import OUTAGE, WorkStore

COUNTED = frozenset({Ending.COMPLETED, Ending.SETTLED, Ending.PERMANENT, Ending.TRANSIENT})
"""Endings that say something of what the handler depends on; the others neither count nor end a row."""
BATCHES = 1_000

log = logging.getLogger("fanout.breaker")


class Breakers:
    """Opens the breaker of a batch, for all workers, once a row of equal errors is as long as its handler allows.

    `on_opened` is told of the batch then.
    """

    def __init__(self, store: WorkStore, on_opened: Callable[[UUID], None]) -> None:
        self._store = store
        self._on_opened = on_opened
        self._rows: dict[UUID, tuple[str, int]] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def observe(self, batch_id: UUID, handler: Handler, outcome: Outcome) -> None:
        """Counts how one item ended."""
        if handler.breaker is None or outcome.ending not in COUNTED:
            return
        error_type, before = self._rows.pop(batch_id, ("", 0))
        if not outcome.trips:
            return
        found = str(outcome.error["type"])
        in_a_row = before + 1 if found == error_type else 1
        if in_a_row >= handler.breaker.failures:
            self._begin(self._open(batch_id, handler, found, in_a_row))
            return
        self._rows[batch_id] = (found, in_a_row)
        if len(self._rows) > BATCHES:
            self._rows.pop(next(iter(self._rows)))

    async def _open(self, batch_id: UUID, handler: Handler, error_type: str, in_a_row: int) -> None:
        assert handler.breaker is not None
        fields = about(batch_id, handler=handler.name)
        text = "%d items in a row ended with %s; the batch stops but for probes"
        log.warning(text, in_a_row, error_type, extra=fields)
        try:
            await self._store.open_breaker(batch_id, error_type, handler.breaker.delay, in_a_row)
            self._on_opened(batch_id)
        except OUTAGE as error:
            log.warning("the batch's breaker could not be opened: %s", type(error).__name__, extra=fields)

    def _begin(self, opening: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(opening)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
