"""What an examination reads: facts of the server, and rows that stand where they should not. Every look is bounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fanout.store.pool import READ_SECONDS, Pool
from fanout.store.statements import STATEMENTS

RECENT_BATCHES = 10_000
SEARCHED_ROWS = 2_000_000
"""Claims are looked for in open batches that have so many rows together."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the database's server says of itself; connections are counted over all of its databases."""

    at: datetime
    cluster_name: str
    fsync: bool
    synchronous_commit: str
    autovacuum: bool
    most_connections: int
    connections: int


@dataclass(frozen=True, slots=True)
class Surge:
    """A handler of which that many batches were made within one second, and of these that many with the same items."""

    handler: str
    together: int
    alike: int
    at: datetime


@dataclass(frozen=True, slots=True)
class UnknownHandlerRows:
    """A handler that open batches need and no live worker has."""

    handler: str
    batches: int


@dataclass(frozen=True, slots=True)
class StoppedBatch:
    """A batch whose breaker is open, or that has been paused for long."""

    id: UUID
    status: str
    reason: str | None
    breaker_type: str | None
    paused_seconds: float | None


@dataclass(frozen=True, slots=True)
class StaleClaim:
    """The rows that one silent worker holds, and one of their batches."""

    worker_id: UUID
    worker: str | None
    rows: int
    batches: int
    batch_id: UUID
    since: datetime


@dataclass(frozen=True, slots=True)
class ClockWitness:
    """A batch with times that have a counterpart: it was created before its run started, and opened after."""

    id: UUID
    workflow_id: str
    created_at: datetime
    opened_at: datetime
    closed_at: datetime | None


class HealthStore:
    """Reads that lock nothing, each with a limit on what it looks at and on its time."""

    def __init__(self, pool: Pool, stale_after: timedelta) -> None:
        self._pool = pool
        self._stale_after = stale_after

    async def _fetch(self, name: str, *arguments: object) -> list[dict[str, Any]]:
        records = await self._pool.fetch(STATEMENTS[name], *arguments, timeout=READ_SECONDS)
        return [dict(record) for record in records]

    async def read_server(self) -> ServerFacts:
        """The server's own facts; needs no schema."""
        [record] = await self._fetch("read_server")
        return ServerFacts(**record)

    async def list_surges(self, within: timedelta, together: int, alike: int) -> list[Surge]:
        """Handlers of which `together` batches, or `alike` with the same items, were made within a second lately."""
        found = await self._fetch("list_surges", within, RECENT_BATCHES, together, alike)
        return [Surge(**record) for record in found]

    async def list_unknown_handlers(self) -> list[UnknownHandlerRows]:
        """Handlers that open batches need and no live worker has."""
        return [
            UnknownHandlerRows(**record) for record in await self._fetch("list_unknown_handlers", self._stale_after)
        ]

    async def count_open(self) -> int:
        """How many batches are open."""
        return int(await self._pool.fetchval(STATEMENTS["count_open"], timeout=READ_SECONDS))

    async def list_stopped(self, paused_for: timedelta) -> list[StoppedBatch]:
        """Batches whose breaker is open, or that have been paused for that long."""
        return [StoppedBatch(**record) for record in await self._fetch("list_stopped", paused_for)]

    async def list_stale_claims(self, silent_for: timedelta) -> list[StaleClaim]:
        """What workers hold that have been silent for that long."""
        return [StaleClaim(**record) for record in await self._fetch("list_stale_claims", silent_for, SEARCHED_ROWS)]

    async def list_keys_without_batch(self, names: Sequence[tuple[str, str]], closed_for: timedelta) -> list[int]:
        """The places of these handlers and keys that have no batch, or none that was open within that time."""
        handlers, keys = [name[0] for name in names], [name[1] for name in names]
        found = await self._fetch("list_keys_without_batch", handlers, keys, closed_for)
        return [record["place"] - 1 for record in found]

    async def list_clock_witnesses(self, within: timedelta, limit: int) -> list[ClockWitness]:
        """The newest batches that can tell whether two clocks agree."""
        return [ClockWitness(**record) for record in await self._fetch("list_clock_witnesses", within, limit)]
