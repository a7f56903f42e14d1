"""Purging: closed batches give their rows back, a small step at a time; their keys are remembered."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from fanout.errors import BatchOpen, KeyBusy, UnknownBatch
from fanout.store import BatchStore

PAGE = 100
AT_ONCE = timedelta(0)
SHORTEST_MEMORY = timedelta(days=30)
"""For how long `status` at least knows a purged batch whose key need not be remembered."""


@dataclass(slots=True)
class PurgeReport:
    """How many batches were purged, and how many rows of theirs deleted, counted over all tables."""

    purged: int = 0
    rows: int = 0


class Purging:
    """Deletes the rows of closed batches. It may end at any point, by whatever: the next run goes on from there.

    A batch is out of everybody's sight by one short transaction, which leaves its status and the memory of its key;
    its rows are deleted after that. Nothing that is open is touched or waited for.
    """

    def __init__(self, store: BatchStore, retention: timedelta) -> None:
        self._store = store
        self._purges = store.purges
        self._retention = retention
        self.report = PurgeReport()

    async def purge_old(self) -> PurgeReport:
        """Every batch that has been closed for longer than the retention; also what an earlier run left half done."""
        while half := await self._purges.list_half_purged(PAGE):
            for batch_id in half:
                await self._empty(batch_id)
        # Whoever has the key locked decides about the batch at this moment: it is the next run's.
        busy: set[UUID] = set()
        while found := await self._purges.list_closed_before(self._retention, PAGE, busy):
            for batch_id in found:
                if not await self._purge(batch_id, self._retention):
                    busy.add(batch_id)
        while await self._purges.forget_purged(PAGE) == PAGE:
            pass
        await self._delete_joins()
        return self.report

    async def purge_one(self, batch_id: UUID) -> PurgeReport:
        """That closed batch, however long it has been closed; one that is purged already changes nothing.

        Raises BatchOpen, UnknownBatch, or KeyBusy while a submit, a retry or another purge of its key is under way.
        """
        if await self._purge(batch_id, AT_ONCE):
            return self.report
        batch = await self._store.read_batch(batch_id)
        if batch is None:
            raise UnknownBatch(str(batch_id))
        if not batch.closed:
            raise BatchOpen(batch_id, batch.status)
        if batch.purged_at is None:
            raise KeyBusy(batch.handler, batch.key)
        await self._empty(batch_id)
        return self.report

    async def _purge(self, batch_id: UUID, age: timedelta) -> bool:
        if not await self._purges.bury_batch(batch_id, age, max(self._retention, SHORTEST_MEMORY)):
            return False
        self.report.purged += 1
        await self._empty(batch_id)
        return True

    async def _delete_joins(self) -> None:
        """The lines of starts that joined purged batches, where they are as old as what is purged."""
        while joined := await self._purges.list_joined_purged(self._retention, PAGE):
            for batch_id in joined:
                self.report.rows += await self._purges.delete_duplicates(batch_id)

    async def _empty(self, batch_id: UUID) -> None:
        more = True
        while more:
            rows, more = await self._purges.delete_rows(batch_id)
            self.report.rows += rows
        self.report.rows += await self._purges.finish_burial(batch_id)
