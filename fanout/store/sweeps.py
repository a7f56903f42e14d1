"""The statements of the sweeper: what a pass looks at, what two passes agree on, and the writes that heal."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from fanout.states import BatchStatus
from fanout.store.news import OnChange, nobody, noted
from fanout.store.pool import SCAN_SECONDS, Pool
from fanout.store.statements import STATEMENTS

FIRST = UUID(int=0)
LATEST = datetime.max.replace(tzinfo=UTC)
SWEEP_SECONDS = 20.0
"""The time limit of a pass's statements: one that waits longer for a lock gives up, and the next pass tries again."""

Ending = Literal["cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class PassStart:
    """When a pass began, since when a batch must have been quiet to be looked at, and behind which batch to begin."""

    began_at: datetime
    quiet_since: datetime
    resume_after: UUID | None


@dataclass(frozen=True, slots=True)
class QuietBatch:
    """The row of an open batch that has settled nothing for a while: the first of the two witnesses.

    `run_id` is the run that an earlier pass saw to be this batch's; `owes_start` when the sweeper changed the row so
    that a run must start, and no start has succeeded since.
    """

    id: UUID
    handler: str
    workflow_id: str
    status: BatchStatus
    epoch: int
    total: int
    settled: int
    progress_at: datetime | None
    created_at: datetime
    run_id: str | None
    revivals: int
    owes_start: bool
    workers: int

    @property
    def evidence(self) -> dict[str, Any]:
        """What it says, for people."""
        return {
            "status": self.status.value,
            "epoch": self.epoch,
            "total": self.total,
            "settled": self.settled,
            "progress_at": None if self.progress_at is None else self.progress_at.isoformat(),
            "workers": self.workers,
            "revivals": self.revivals,
        }


@dataclass(frozen=True, slots=True)
class Standstill:
    """For how long passes have seen a batch's row as it is, for how long with this verdict, and what was told of it."""

    quiet_seconds: float
    found_seconds: float
    told: list[str]


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last pass that was finished."""

    began_at: datetime
    ended_at: datetime
    age_seconds: float


class SweepStore:
    """What the sweeper does to rows. Each method is one transaction; a write tests the facts that two passes saw."""

    def __init__(self, pool: Pool, stale_after: timedelta, on_change: OnChange = nobody) -> None:
        self._pool = pool
        self._stale_after = stale_after
        self._on_change = on_change

    async def begin_pass(self, every: timedelta) -> PassStart:
        """Forgets what is known of closed batches; without a finished pass in the last interval `every` counts."""
        await self._pool.execute(STATEMENTS["forget_closed"], timeout=SWEEP_SECONDS)
        row = await self._pool.fetchrow(STATEMENTS["begin_pass"], every, timeout=SWEEP_SECONDS)
        assert row is not None
        return PassStart(**dict(row))

    async def list_quiet_batches(
        self, after: UUID, limit: int, quiet_since: datetime, unopened_for: timedelta
    ) -> list[QuietBatch]:
        """The next batches by id that have settled nothing since then, or that nobody has opened for that long."""
        records = await self._pool.fetch(
            STATEMENTS["list_quiet_batches"],
            after,
            limit,
            quiet_since,
            unopened_for,
            self._stale_after,
            timeout=SWEEP_SECONDS,
        )
        return [QuietBatch(**{**dict(record), "status": BatchStatus(record["status"])}) for record in records]

    async def read_quiet_batch(self, batch_id: UUID) -> QuietBatch | None:
        """One open batch as a pass would see it, whether it is quiet or not."""
        before = UUID(int=max(0, batch_id.int - 1))
        found = await self.list_quiet_batches(before, 1, LATEST, timedelta(0))
        return found[0] if found and found[0].id == batch_id else None

    async def note_verdict(self, batch: QuietBatch, verdict: str, run_id: str | None) -> Standstill:
        """Keeps a pass's verdict for the next one."""
        row = await self._pool.fetchrow(
            STATEMENTS["note_verdict"],
            batch.id,
            batch.status,
            batch.epoch,
            batch.settled,
            batch.progress_at,
            verdict,
            run_id,
            timeout=SWEEP_SECONDS,
        )
        assert row is not None
        return Standstill(**dict(row))

    async def revive_batch(self, batch: QuietBatch, evidence: dict[str, Any]) -> bool:
        """Raises the epoch of a batch that still is as it was seen, and owes it a start; False without effect."""
        revived = await self._pool.fetchval(
            STATEMENTS["revive_batch"],
            batch.id,
            batch.status,
            batch.epoch,
            batch.progress_at,
            json.dumps({"evidence": evidence}),
            timeout=SWEEP_SECONDS,
        )
        self._on_change(batch.id)
        return bool(revived)

    async def abandon_batch(self, batch: QuietBatch, ends_as: Ending, reason: str, evidence: dict[str, Any]) -> bool:
        """Ends a batch that still is as it was seen, as a cancel does, and owes it the run that closes it.

        False without effect.
        """
        async with self._pool.transaction() as connection:
            changed = await connection.fetchval(
                STATEMENTS["abandon_batch"],
                batch.id,
                batch.status,
                batch.epoch,
                batch.progress_at,
                ends_as,
                reason,
                timeout=SWEEP_SECONDS,
            )
            if changed:
                await connection.fetch(
                    STATEMENTS["cancel_rows"], batch.id, self._stale_after, timedelta(days=1), timeout=SCAN_SECONDS
                )
                told = {"action": ends_as, "reason": reason, "evidence": evidence}
                await connection.execute(
                    STATEMENTS["tell_abandoned"], batch.id, json.dumps(told), timeout=SWEEP_SECONDS
                )
        self._on_change(batch.id)
        return bool(changed)

    @noted
    async def tell_once(self, batch_id: UUID, word: str, kind: str, data: dict[str, Any]) -> bool:
        """An event, once for each `word` while the batch's row stays as it is; says whether this call wrote it."""
        text = json.dumps(data)
        return bool(
            await self._pool.fetchval(STATEMENTS["tell_once"], batch_id, word, kind, text, timeout=SWEEP_SECONDS)
        )

    async def note_start(self, batch_id: UUID) -> None:
        """The batch is owed no start any more."""
        await self._pool.execute(STATEMENTS["note_start"], batch_id, timeout=SWEEP_SECONDS)

    async def end_pass(
        self, began_at: datetime, examined: int, healed: int, failed: int, resume_after: UUID | None
    ) -> None:
        """Records the pass as finished; `resume_after` where it ran out of time."""
        await self._pool.execute(
            STATEMENTS["end_pass"], began_at, examined, healed, failed, resume_after, timeout=SWEEP_SECONDS
        )

    async def read_last_sweep(self) -> LastSweep | None:
        """The last pass that was finished, with its age by the database's clock; None before the first."""
        row = await self._pool.fetchrow(STATEMENTS["read_last_sweep"])
        return None if row is None else LastSweep(**dict(row))
