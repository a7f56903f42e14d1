"""The statements that purge closed batches: one short transaction a step, so that each may be the last."""

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

import asyncpg

from fanout.store.pool import SCAN_SECONDS, Pool
from fanout.store.statements import STATEMENTS

STEP_ITEMS = 2_000
"""So many items, or events, are deleted in one transaction."""
LOCK_SECONDS = 20.0


class PurgeStore:
    """Deletes closed batches. Every method may be interrupted at any point and repeated, by several at once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_closed_before(self, age: timedelta, limit: int, but: Collection[UUID]) -> list[UUID]:
        """Batches that have been closed for longer than `age`, the oldest first."""
        records = await self._pool.fetch(STATEMENTS["list_closed_before"], age, limit, list(but))
        return [record["id"] for record in records]

    async def bury_batch(self, batch_id: UUID, age: timedelta, remembered: timedelta) -> bool:
        """Turns a batch that has been closed for `age` into what is remembered of it; its rows are deleted after that.

        `remembered` is for how long where its key needs no memory. False without effect: it is open, was closed
        later, is purged already, or a submit or retry of its key is under way.
        """
        try:
            async with self._pool.transaction() as connection:
                # First the key, as a retry does: one of the two finds the other's work done.
                await connection.execute(STATEMENTS["lock_key_to_purge"], batch_id)
                buried = await connection.fetchval(
                    STATEMENTS["bury_batch"], batch_id, age, remembered, timeout=LOCK_SECONDS
                )
        except asyncpg.LockNotAvailableError:
            return False
        return buried is not None

    async def list_half_purged(self, limit: int) -> list[UUID]:
        """Batches that are buried and have rows left."""
        return [record["batch_id"] for record in await self._pool.fetch(STATEMENTS["list_half_purged"], limit)]

    async def delete_rows(self, batch_id: UUID) -> tuple[int, bool]:
        """Deletes the next step of a buried batch: how many rows, and whether there is more to do."""
        record = await self._pool.fetchrow(STATEMENTS["delete_rows"], batch_id, STEP_ITEMS, timeout=SCAN_SECONDS)
        if record is None:
            return 0, False
        if record["more"]:
            return record["rows"], True
        rows = record["rows"] + await self._delete("delete_events", batch_id)
        return rows + await self.delete_duplicates(batch_id), False

    async def list_joined_purged(self, age: timedelta, limit: int) -> list[UUID]:
        """Purged batches that a start has joined since, longer than `age` ago."""
        records = await self._pool.fetch(STATEMENTS["list_joined_purged"], age, limit, timeout=SCAN_SECONDS)
        return [record["batch_id"] for record in records]

    async def delete_duplicates(self, batch_id: UUID) -> int:
        """Deletes the lines of starts that joined a purged batch; their number and the last origin are remembered."""
        return await self._delete("delete_duplicates", batch_id)

    async def _delete(self, name: str, batch_id: UUID) -> int:
        total = 0
        while rows := await self._pool.fetchval(STATEMENTS[name], batch_id, STEP_ITEMS, timeout=SCAN_SECONDS):
            total += rows
        return total

    async def finish_burial(self, batch_id: UUID) -> int:
        """Deletes the last rows of a buried batch, and notes that nothing is left."""
        return int(await self._pool.fetchval(STATEMENTS["finish_burial"], batch_id))

    async def forget_purged(self, limit: int) -> int:
        """Forgets purged batches whose key need not be remembered any longer; answers how many."""
        return int(await self._pool.fetchval(STATEMENTS["forget_purged"], limit))
