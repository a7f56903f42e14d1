"""The statements of a worker: claim, settle, give back, and the lease that makes its claims count."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg

from fanout.points import FaultPoint, FaultPoints, after
from fanout.states import BatchStatus
from fanout.store.news import OnChange, nobody, noted
from fanout.store.pool import Pool
from fanout.store.rows import Claim, ClaimedItem, Completion, Remainder, Verdict, WorkerFacts
from fanout.store.statements import STATEMENTS


class WorkStore:
    """What workers do to rows. Every method is one atomic statement, and harmless to repeat.

    `stale_after` is the time after which a worker whose row was not refreshed counts as dead.
    """

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

    @noted
    @after(FaultPoint.CLAIM_COMMITTED)
    async def claim(
        self,
        batch_id: UUID,
        epoch: int,
        span: tuple[int, int],
        limit: int,
        claim_id: UUID,
        worker_id: UUID,
        probe: bool = False,
    ) -> Claim:
        """Claims up to `limit` due rows of `span` in seq order, those of dead workers among them.

        `claim_id` must be new for every call: `read_claim` finds by it what a claim took whose answer was lost. While
        the batch's breaker is open only a `probe` claims, by whoever was granted it by `take_probe`.
        """
        lo, hi = span
        records = await self._pool.fetch(
            STATEMENTS["claim"], batch_id, epoch, lo, hi, limit, claim_id, worker_id, self._stale_after, probe
        )
        items = [_claimed(record, claim_id) for record in records if record["seq"] is not None]
        return Claim(bool(records[0]["current"]), items, records[0]["breaker_in"])

    @noted
    async def open_breaker(self, batch_id: UUID, error_type: str, delay: timedelta, in_a_row: int) -> None:
        """Stops the batch's claims until a probe shows that `error_type` is over; on an open breaker no effect."""
        await self._pool.execute(STATEMENTS["open_breaker"], batch_id, error_type, delay, in_a_row)

    async def take_probe(self, batch_id: UUID, epoch: int, delay: timedelta) -> bool:
        """Whether the caller may try one item now; nobody else may for `delay`."""
        return bool(await self._pool.fetchval(STATEMENTS["take_probe"], batch_id, epoch, delay))

    @noted
    async def close_breaker(self, batch_id: UUID) -> None:
        """Lets the batch go on; on a closed breaker no effect."""
        await self._pool.execute(STATEMENTS["close_breaker"], batch_id)

    @noted
    async def tell_blocked(self, batch_id: UUID, seq: int, item_key: str, seconds: float, worker: str) -> None:
        """Adds an event that names the item whose handler holds up a worker's loop."""
        await self._pool.execute(STATEMENTS["tell_blocked"], batch_id, seq, item_key, seconds, worker)

    async def read_claim(self, batch_id: UUID, span: tuple[int, int], claim_id: UUID) -> list[ClaimedItem]:
        """The rows that `claim_id` holds."""
        records = await self._pool.fetch(STATEMENTS["read_claim"], batch_id, *span, claim_id)
        return [_claimed(record, claim_id) for record in records]

    async def read_remainder(self, batch_id: UUID, span: tuple[int, int], worker_id: UUID) -> Remainder:
        """What of `span` is open, and why."""
        record = await self._pool.fetchrow(STATEMENTS["read_remainder"], batch_id, *span, worker_id, self._stale_after)
        assert record is not None
        return Remainder(**record)

    async def read_currency(self, batch_ids: Iterable[UUID]) -> dict[UUID, tuple[BatchStatus, int]]:
        """State and epoch of each batch that exists."""
        records = await self._pool.fetch(STATEMENTS["read_currency"], list(batch_ids))
        return {record["id"]: (BatchStatus(record["status"]), record["epoch"]) for record in records}

    @noted
    @after(FaultPoint.COMPLETE_COMMITTED)
    async def complete(self, batch_id: UUID, rows: Sequence[Completion], slot: int) -> set[int]:
        """Completes rows and counts them; answers the seqs that stand settled under these claims, also from before."""
        arguments = settle_arguments(rows, slot)
        seqs, claims = arguments[:2]
        return await self._settle("complete", "completed", batch_id, seqs, claims, *arguments[1:])

    @noted
    @after(FaultPoint.FAIL_COMMITTED)
    async def fail(self, batch_id: UUID, rows: Sequence[Verdict], slot: int) -> set[int]:
        """Fails rows, counts them, and appends an event for each; answers as `complete`."""
        claims = _object((row.seq, f'"{row.claim_id}"') for row in rows)
        return await self._settle("fail", "failed", batch_id, [row.seq for row in rows], claims, _facts(rows), slot)

    @noted
    async def trip_budget(self, batch_id: UUID) -> None:
        """Pauses the batch, or gives it up, if it has more failures than its budget allows; else changes nothing."""
        await self._pool.execute(STATEMENTS["trip_budget"], batch_id)

    @noted
    @after(FaultPoint.RELEASE_COMMITTED)
    async def release(self, batch_id: UUID, rows: Sequence[Verdict], slot: int) -> set[int]:
        """Gives rows back, or cancels them where their batch is being cancelled; answers the seqs that it changed.

        A row that it does not answer is no longer held under that claim: an earlier call may have released it.
        """
        records = await self._pool.fetch(STATEMENTS["release"], batch_id, [row.seq for row in rows], _facts(rows), slot)
        return {record["seq"] for record in records}

    async def _settle(
        self, name: str, status: str, batch_id: UUID, seqs: list[int], claims: str, *arguments: object
    ) -> set[int]:
        records = await self._pool.fetch(STATEMENTS[name], batch_id, seqs, *arguments)
        settled = {record["seq"] for record in records}
        if len(settled) < len(seqs):
            missing = [seq for seq in seqs if seq not in settled]
            records = await self._pool.fetch(STATEMENTS["read_settled"], batch_id, missing, claims, status)
            settled.update(record["seq"] for record in records)
        return settled

    @after(FaultPoint.WORKER_REFRESHED)
    async def refresh_worker(self, worker: WorkerFacts) -> None:
        """Renews the lease of everything that this worker claimed, or takes it out for the first time."""
        await self._pool.execute(
            STATEMENTS["refresh_worker"],
            worker.id,
            worker.identity,
            json.dumps(worker.handlers),
            worker.build,
            worker.concurrency,
        )

    @after(FaultPoint.WORKER_REMOVED)
    async def remove_worker(self, worker_id: UUID) -> None:
        """Ends the lease at once: whatever the worker still holds may be taken over."""
        await self._pool.execute(STATEMENTS["remove_worker"], worker_id)

    async def forget_workers(self) -> None:
        """Deletes the rows of workers that have been silent for a day."""
        await self._pool.execute(STATEMENTS["forget_workers"])


def settle_arguments(rows: Sequence[Completion], slot: int) -> tuple[list[int], str, str, int]:
    """What `complete` takes after the batch: seqs, claims by seq, results by seq, and the slot of the counters."""
    claims = _object((row.seq, f'"{row.claim_id}"') for row in rows)
    results = _object((row.seq, row.result) for row in rows)
    return [row.seq for row in rows], claims, results, slot


def _claimed(record: asyncpg.Record, claim_id: UUID) -> ClaimedItem:
    return ClaimedItem(
        seq=record["seq"],
        key=record["item_key"],
        payload=record["payload"],
        claim_id=claim_id,
        attempts=record["attempts"],
        crashes=record["crashes"],
        throttles=record["throttles"],
    )


def _object(pairs: Iterable[tuple[int, str]]) -> str:
    """A JSON object from seqs and JSON texts, without decoding the texts."""
    return "{" + ",".join(f'"{seq}":{text}' for seq, text in pairs) + "}"


def _facts(rows: Sequence[Verdict]) -> str:
    return json.dumps(
        {
            row.seq: {
                "claim": str(row.claim_id),
                "error": row.error,
                "attempts": row.attempts,
                "crashes": row.crashes,
                "throttles": row.throttles,
                "delay": row.delay,
                "kind": row.kind,
            }
            for row in rows
        }
    )
