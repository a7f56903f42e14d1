"""The statements about whole batches: submit, open, close, cancel, reopen, read."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from fanout.errors import KeyHeld, UnknownItem
from fanout.points import FaultPoint, FaultPoints, after
from fanout.states import BatchStatus
from fanout.store.browsing import Browsing
from fanout.store.gauges import GaugeStore
from fanout.store.health import HealthStore
from fanout.store.joins import Joins
from fanout.store.news import OnChange, nobody, noted
from fanout.store.pool import READ_SECONDS, SCAN_SECONDS, Connection, Pool
from fanout.store.purges import PurgeStore
from fanout.store.rows import (
    BatchRow,
    ItemRow,
    Position,
    ResultRow,
    Violation,
    WholeBatch,
    WorkerFacts,
    WorkerRow,
    decode,
    result_row,
)
from fanout.store.standings import StandingStore
from fanout.store.statements import STATEMENTS
from fanout.store.submission import Submission
from fanout.store.sweeps import SweepStore

OPEN_SPANS = 1_000
PAGE_ROWS = 200

Reopened = Literal["failed", "cancelled"]


class NothingToReopen(Exception):
    """Rolls a reopening back."""


class BatchStore:
    """What clients and parent workflows do to batches. Each method is one transaction unless it says otherwise."""

    def __init__(
        self,
        pool: Pool,
        stale_after: timedelta,
        points: FaultPoints | None = None,
        on_change: OnChange = nobody,
    ) -> None:
        self._pool = pool
        self._stale_after = stale_after
        self._points = points
        self._on_change = on_change

    @property
    def joins(self) -> Joins:
        """What there is to know of batches that other submits join, each by a transaction of its own."""
        return Joins(self._pool)

    @property
    def browsing(self) -> Browsing:
        """Pages and sums for people who look around."""
        return Browsing(self._pool)

    @property
    def sweeps(self) -> SweepStore:
        """What is known of standstills, and what the sweeper reads of batches."""
        return SweepStore(self._pool, self._stale_after, self._on_change)

    @property
    def standings(self) -> StandingStore:
        """What open rows wait for."""
        return StandingStore(self._pool, self._stale_after)

    @property
    def health(self) -> HealthStore:
        """What an examination reads."""
        return HealthStore(self._pool, self._stale_after)

    @property
    def purges(self) -> PurgeStore:
        """What deletes closed batches."""
        return PurgeStore(self._pool)

    @property
    def gauges(self) -> GaugeStore:
        """Bounded looks at what is open, for metrics."""
        return GaugeStore(self._pool, self._stale_after)

    @asynccontextmanager
    async def submitting(self) -> AsyncIterator[Submission]:
        """One transaction that stores a batch whole, or nothing at all."""
        async with self._pool.transaction() as connection:
            yield Submission(connection)
        if self._points is not None:
            await self._points.reach(FaultPoint.SUBMIT_COMMITTED)

    @noted
    @after(FaultPoint.OPEN_COMMITTED)
    async def open_batch(self, batch_id: UUID, workflow_id: str) -> None:
        """Moves a pending batch to processing for the workflow that its row names; else changes nothing."""
        await self._pool.fetch(STATEMENTS["open_batch"], batch_id, workflow_id)

    @noted
    @after(FaultPoint.CLOSE_COMMITTED)
    async def close_batch(
        self,
        batch_id: UUID,
        epoch: int,
        cancel_grace: timedelta,
        follow_up: Callable[[BatchRow], WholeBatch | None] = lambda batch: None,
    ) -> bool:
        """Closes the batch if all its rows are settled and its epoch is still `epoch`; says whether this call did.

        In a batch that is being cancelled it first settles the rows that nobody runs any more. The transaction that
        closes stores what `follow_up` makes of the closed batch: both are there, or neither is.
        """
        async with self._pool.acquire() as connection:
            await connection.execute(STATEMENTS["trip_budget"], batch_id)
            await connection.fetch(
                STATEMENTS["cancel_rows"], batch_id, self._stale_after, cancel_grace, timeout=SCAN_SECONDS
            )
            async with connection.transaction():
                closed = await connection.fetchval(STATEMENTS["close_batch"], batch_id, epoch, timeout=SCAN_SECONDS)
                if closed:
                    await self._store_follow_up(connection, batch_id, follow_up)
                return bool(closed)

    async def _store_follow_up(
        self, connection: Connection, batch_id: UUID, follow_up: Callable[[BatchRow], WholeBatch | None]
    ) -> None:
        batch = await self._read_batch(connection, batch_id)
        whole = None if batch is None else follow_up(batch)
        if whole is None:
            return
        submission = Submission(connection)
        if await submission.lock_key(whole.batch.handler, whole.batch.key, whole.batch.id) == whole.batch.id:
            await submission.copy_items(whole.batch.id, 0, whole.items)
            await submission.insert_batch(whole.batch, len(whole.items), whole.fingerprint)

    @noted
    @after(FaultPoint.CANCEL_COMMITTED)
    async def cancel_batch(self, batch_id: UUID, reason: str | None) -> bool:
        """From its commit on no claim succeeds and all rows that do not run are cancelled; False without effect."""
        return await self._give_up("cancel_batch", "tell_cancelling", batch_id, reason)

    @noted
    async def expire_batch(self, batch_id: UUID) -> bool:
        """Gives up an open batch whose deadline has passed, as a cancel does; False without effect."""
        return await self._give_up("expire_batch", "tell_expired", batch_id)

    async def _give_up(self, change: str, tell: str, batch_id: UUID, *arguments: object) -> bool:
        async with self._pool.transaction() as connection:
            changed = await connection.fetchval(STATEMENTS[change], batch_id, *arguments)
            if changed:
                # A second statement, for a snapshot from after the batch row was locked: no release slips through.
                await connection.fetch(
                    STATEMENTS["cancel_rows"],
                    batch_id,
                    self._stale_after,
                    timedelta(days=1),
                    timeout=SCAN_SECONDS,
                )
                await connection.execute(STATEMENTS[tell], batch_id)
        return bool(changed)

    @noted
    async def trip_budget(self, batch_id: UUID) -> None:
        """Pauses the batch, or gives it up, if it has more failures than its budget allows; else changes nothing."""
        await self._pool.execute(STATEMENTS["trip_budget"], batch_id)

    @noted
    @after(FaultPoint.PAUSE_COMMITTED)
    async def pause_batch(self, batch_id: UUID) -> bool:
        """From its commit on no claim succeeds, what runs goes on; False without effect."""
        return bool(await self._pool.fetch(STATEMENTS["pause_batch"], batch_id))

    @noted
    @after(FaultPoint.RESUME_COMMITTED)
    async def resume_batch(self, batch_id: UUID) -> bool:
        """Lets a paused batch go on, and forgives the failures so far; False without effect."""
        return bool(await self._pool.fetch(STATEMENTS["resume_batch"], batch_id))

    @noted
    @after(FaultPoint.REOPEN_COMMITTED)
    async def reopen_batch(
        self,
        batch_id: UUID,
        error_type: str | None = None,
        item_keys: Sequence[str] | None = None,
        status: Reopened = "failed",
        error_code: str | None = None,
    ) -> tuple[int, int] | None:
        """Reopens rows that are `status` under a new epoch: (epoch, rows), or None when there was nothing to reopen.

        `error_type`, `error_code` and `item_keys` narrow it. Earlier errors stay in the batch's events, and a budget
        starts anew.
        Raises KeyHeld where another open batch has the key by now.
        """
        with suppress(NothingToReopen):
            async with self._pool.transaction() as connection:
                await self._retake_key(connection, batch_id)
                epoch = await connection.fetchval(STATEMENTS["reopen_batch"], batch_id, status)
                if epoch is None:
                    # Without the lock of the batch's row no other row may be touched: a cancel takes that one first.
                    raise NothingToReopen
                wanted = (status, error_type, item_keys, error_code)
                rows = await connection.fetchval(STATEMENTS["reopen_rows"], batch_id, *wanted, timeout=SCAN_SECONDS)
                await connection.execute(STATEMENTS["tell_reopened"], batch_id)
                if rows == 0:
                    raise NothingToReopen
            return int(epoch), int(rows)
        return None

    async def _retake_key(self, connection: Connection, batch_id: UUID) -> None:
        owner = await connection.fetchval(STATEMENTS["lock_key_of_batch"], batch_id)
        if owner in (None, batch_id):
            return
        if not await connection.fetchval(STATEMENTS["retake_key"], batch_id, owner):
            raise KeyHeld(batch_id, owner)

    async def read_batch(self, batch_id: UUID) -> BatchRow | None:
        """The batch with its counts in one snapshot."""
        async with self._pool.acquire() as connection:
            return await self._read_batch(connection, batch_id)

    async def _read_batch(self, connection: Connection, batch_id: UUID) -> BatchRow | None:
        record = await connection.fetchrow(STATEMENTS["read_batch"], batch_id, self._stale_after, timeout=READ_SECONDS)
        if record is None:
            return None
        values = dict(record)
        values["status"] = BatchStatus(values["status"])
        values["options"] = json.loads(values["options"])
        return BatchRow(**values)

    async def find_batch(self, handler: str, key: str) -> UUID | None:
        """The newest batch of a key."""
        found: UUID | None = await self._pool.fetchval(STATEMENTS["find_batch"], handler, key)
        return found

    async def find_holder(self, handler: str, key: str) -> UUID | None:
        """The batch that has a key: the newest, unless an older one was retried."""
        found: UUID | None = await self._pool.fetchval(STATEMENTS["find_holder"], handler, key)
        return found

    async def read_successor(self, batch_id: UUID) -> UUID | None:
        """The open batch that has this one's key by now, if that is another."""
        found: UUID | None = await self._pool.fetchval(STATEMENTS["read_successor"], batch_id)
        return found

    async def list_batches(self, status: str | None, handler: str | None, limit: int) -> list[UUID]:
        """The newest batches first."""
        return [row["id"] for row in await self._pool.fetch(STATEMENTS["list_batches"], status, handler, limit)]

    async def list_batches_to_verify(self, closed: int) -> list[UUID]:
        """All open batches and the last `closed` that closed."""
        open_ones = await self._pool.fetch(STATEMENTS["list_open_batches"])
        return [row["id"] for row in (*open_ones, *await self._pool.fetch(STATEMENTS["list_closed_batches"], closed))]

    async def read_open_spans(self, batch_id: UUID, total: int) -> list[tuple[int, int]]:
        """Spans `[lo, hi)` that hold all open rows, at most about 1,000; neighbours are joined."""
        records = await self._pool.fetch(
            STATEMENTS["read_open_spans"], batch_id, max(1, -(-total // OPEN_SPANS)), timeout=SCAN_SECONDS
        )
        spans: list[tuple[int, int]] = []
        for lo, hi in records:
            if spans and spans[-1][1] == lo:
                spans[-1] = (spans[-1][0], hi)
            else:
                spans.append((lo, hi))
        return spans

    async def count_processing(self, batch_id: UUID) -> int:
        """How many rows are claimed right now; of more than 20,000 items, how many live workers have told of."""
        return int(await self._pool.fetchval(STATEMENTS["count_processing"], batch_id, self._stale_after) or 0)

    async def read_item_keys(self, batch_id: UUID, lo: int, hi: int) -> list[str]:
        """The keys of `[lo, hi)` in seq order."""
        return [row["item_key"] for row in await self._pool.fetch(STATEMENTS["read_item_keys"], batch_id, lo, hi)]

    async def read_results(
        self, batch_id: UUID, status: str | None = None, with_payload: bool = False
    ) -> AsyncIterator[ResultRow]:
        """All rows in seq order, a page at a time: constant memory; rows may settle between two pages."""
        after = -1
        while True:
            page = await self._pool.fetch(STATEMENTS["read_results"], batch_id, after, status, with_payload, PAGE_ROWS)
            for record in page:
                yield result_row(record)
            if len(page) < PAGE_ROWS:
                return
            after = page[-1]["seq"]

    async def read_item(self, batch_id: UUID, item_key: str) -> ItemRow:
        """One item with its history; raises UnknownItem."""
        record = await self._pool.fetchrow(STATEMENTS["read_item"], batch_id, item_key)
        if record is None:
            raise UnknownItem(batch_id, item_key)
        events = await self._pool.fetch(STATEMENTS["read_item_events"], batch_id, record["seq"])
        return ItemRow(
            row=result_row(record),
            due_at=record["due_at"],
            claimed_at=record["claimed_at"],
            settled_at=record["settled_at"],
            worker=record["worker"],
            history=[_event(event) for event in events],
        )

    async def read_events(self, batch_id: UUID, after: int, limit: int = 1_000) -> list[dict[str, Any]]:
        """The batch's events with ids above `after`, in order; none is ever skipped by one that commits late."""
        return [_event(record) for record in await self._pool.fetch(STATEMENTS["read_events"], batch_id, after, limit)]

    async def read_position(self, batch_id: UUID) -> Position | None:
        """Where the batch's stream of events begins and ends; None without such a batch."""
        record = await self._pool.fetchrow(STATEMENTS["read_position"], batch_id, timeout=READ_SECONDS)
        return None if record is None else Position(**record)

    async def list_workers(self, seen_within: timedelta | None = None) -> list[WorkerRow]:
        """The workers whose lease is fresh, or those that were seen within some other time and have not ended."""
        return [
            WorkerRow(
                facts=WorkerFacts(
                    record["id"],
                    record["identity"],
                    json.loads(record["handlers"]),
                    record["build"],
                    record["concurrency"],
                ),
                lanes=record["lanes"],
                started_at=record["started_at"],
                seen_at=record["seen_at"],
            )
            for record in await self._pool.fetch(STATEMENTS["list_workers"], seen_within or self._stale_after)
        ]

    async def read_violations(self, batch_id: UUID) -> list[Violation]:
        """The invariants that this batch's rows break, proved in one snapshot."""
        records = await self._pool.fetch(STATEMENTS["read_violations"], batch_id, timeout=SCAN_SECONDS)
        return [Violation(batch_id, record["code"], record["detail"]) for record in records]


def _event(record: asyncpg.Record) -> dict[str, Any]:
    return {
        "id": record["id"],
        "kind": record["kind"],
        "at": record["at"].isoformat(),
        "data": decode(record["data"]),
    }
