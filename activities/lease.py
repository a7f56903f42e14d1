"""The worker's row, refreshed by the engine's own loop: it keeps the worker's claims, however long an item takes."""

import asyncio
import logging
import time
from contextlib import suppress

from activities.claims import Claims
from fanout.store import OUTAGE, WorkerFacts, WorkStore

REFRESH_SECONDS = 1.0
AGAIN_SECONDS = 0.25
TRY_SECONDS = 2.0
"""A try and its pause are shorter than the three seconds after which a worker that is back may take others for dead."""
LAST_SECONDS = 1.0

log = logging.getLogger("fanout.lease")


class Lease:
    """Holds one worker's row from `start` to `end`."""

    def __init__(self, store: WorkStore, worker: WorkerFacts, claims: Claims) -> None:
        self._store = store
        self._claims = claims
        self.renewed_at = 0.0
        self._worker = worker
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Writes the row, then keeps it fresh; raises what the database raises the first time."""
        await self._store.forget_workers()
        await self._renew()
        self._task = asyncio.create_task(self._refresh())

    async def _renew(self) -> None:
        began = time.monotonic()
        await self._store.refresh_worker(self._worker, self._claims.by_handler())
        self.renewed_at = began

    async def end(self) -> None:
        """Removes the row: what the worker still held is free at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(*OUTAGE):
            async with asyncio.timeout(LAST_SECONDS):
                await self._store.remove_worker(self._worker.id)

    async def _refresh(self) -> None:
        pause = REFRESH_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = AGAIN_SECONDS
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    await self._renew()
                pause = REFRESH_SECONDS
            except OUTAGE as error:
                log.warning("worker %s could not renew its lease: %s", self._worker.id, type(error).__name__)
            except Exception:
                # Whatever it is, a lease that nobody renews would let others start live work.
                log.exception("worker %s could not renew its lease", self._worker.id)
