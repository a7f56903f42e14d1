"""The worker's row, refreshed by the engine's own loop: it keeps the worker's claims, however long an item takes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fanout.store import OUTAGE, WorkerFacts, WorkStore

REFRESH_SECONDS = 1.0
LAST_SECONDS = 1.0

log = logging.getLogger("fanout.lease")


class Lease:
    """Holds one worker's row from `start` to `end`; `on_refresh` runs after each renewal."""

    def __init__(self, store: WorkStore, worker: WorkerFacts, on_refresh: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._worker = worker
        self._on_refresh = on_refresh
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Writes the row, then keeps it fresh; raises what the database raises the first time."""
        await self._store.forget_workers()
        await self._store.refresh_worker(self._worker)
        self._task = asyncio.create_task(self._refresh())

    async def end(self) -> None:
        """Removes the row: what the worker still held is free at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(*OUTAGE):
            await asyncio.wait_for(self._store.remove_worker(self._worker.id), LAST_SECONDS)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await asyncio.wait_for(self._store.refresh_worker(self._worker), 5)
                await asyncio.wait_for(self._on_refresh(), 5)
            except OUTAGE as error:
                log.warning("worker %s could not renew its lease: %s", self._worker.id, type(error).__name__)
            except Exception:
                # Whatever it is, a lease that nobody renews would let others start live work.
                log.exception("worker %s could not renew its lease", self._worker.id)
