"""What the store's tests share: databases of their own, actors with one connection each, and small batches."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from fanout.devstack import Stack
from fanout.store import (
    BatchStore,
    Claim,
    ClaimedItem,
    Completion,
    Connection,
    NewBatch,
    Pool,
    StoredItem,
    Verdict,
    WorkerFacts,
    WorkStore,
    connect_pool,
)
from tests.support import create_database, eventually

STALE_AFTER = timedelta(minutes=10)
NO_GRACE = timedelta(0)
LONG_GRACE = timedelta(days=1)
FINGERPRINT = bytes(32)
WORKFLOW = "fanout/test.store/key"
HANDLER = "test.store"
# Both count from now, and a busy machine may take its time for what comes next.
NEVER_AWAY = """update fanout.workers set fresh_since = '-infinity', seen_at = clock_timestamp() + interval '1 hour'
where id = $1"""
LONG_SILENT = "update fanout.workers set seen_at = clock_timestamp() - interval '1 hour' where id = $1"
"""What whoever looks from here on knows of a worker, until it renews its lease."""
Answer = TypeVar("Answer")


@asynccontextmanager
async def database(stack: Stack, template: str) -> AsyncIterator[str]:
    """The URL of a migrated database that is dropped at the end."""
    url = await create_database(stack, template)
    try:
        yield url
    finally:
        server = await asyncpg.connect(stack.database_url)
        await server.execute(f'drop database "{url.rpartition("/")[2].partition("?")[0]}" with (force)')
        await server.close()


@dataclass(frozen=True)
class Actor:
    """Somebody with a connection of its own, so that it can be seen to wait for a lock."""

    url: str
    pool: Pool
    pid: int
    worker: WorkerFacts
    batches: BatchStore
    work: WorkStore

    async def refresh(self) -> None:
        """Takes out or renews the lease of this actor's worker, which counts as one that was never away."""
        await self.work.refresh_worker(self.worker)
        await self.pool.execute(NEVER_AWAY, self.worker.id)

    async def claim(self, batch_id: UUID, limit: int = 500, epoch: int = 1, span: tuple[int, int] = (0, 500)) -> Claim:
        """Claims under a new claim id, with a lease that was just renewed."""
        await self.refresh()
        return await self.work.claim(batch_id, epoch, span, limit, uuid4(), self.worker.id)

    async def stands_at_a_lock(self) -> None:
        """Waits until the server says that this actor's statement waits for another's lock."""

        async def waiting() -> bool:
            async with observer(self.url) as connection:
                return bool(
                    await connection.fetchval(
                        "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", self.pid
                    )
                )

        await eventually(waiting)


@asynccontextmanager
async def observer(url: str) -> AsyncIterator[Connection]:
    """A connection for one look."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def actors(url: str, count: int, stale_after: timedelta = STALE_AFTER) -> AsyncIterator[list[Actor]]:
    """`count` actors whose workers live."""
    made = []
    try:
        for number in range(count):
            pool = await connect_pool(url, purpose=f"actor {number}", size=1)
            pid = await pool.fetchval("select pg_backend_pid()")
            facts = WorkerFacts(uuid4(), f"actor-{number}", {HANDLER: {}}, "test", 10)
            actor = Actor(url, pool, pid, facts, BatchStore(pool, stale_after), WorkStore(pool, stale_after))
            made.append(actor)
            await actor.refresh()
        yield made
    finally:
        for actor in made:
            await actor.pool.close()


@asynccontextmanager
async def at_the_lock(actor: Actor, call: Coroutine[Any, Any, Answer]) -> AsyncIterator["asyncio.Task[Answer]"]:
    """The call of `actor`, begun and standing at somebody's lock; the block must take that lock away."""
    task = asyncio.create_task(call)
    try:
        await actor.stands_at_a_lock()
        yield task
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def add_batch(
    batches: BatchStore,
    total: int,
    key: str | None = None,
    opened: bool = True,
    options: dict[str, Any] | None = None,
    deadline: timedelta | None = None,
) -> UUID:
    """A new batch of `total` items with the keys k0, k1, …; processing if `opened`, else pending."""
    batch_id = uuid4()
    key = key or str(batch_id)
    async with batches.submitting() as submission:
        await submission.lock_key(HANDLER, key, batch_id)
        for first in range(0, total, 5_000):
            seqs = range(first, min(total, first + 5_000))
            await submission.copy_items(batch_id, first, [StoredItem(f"k{seq}", f'{{"n": {seq}}}') for seq in seqs])
        new = NewBatch(batch_id, HANDLER, key, WORKFLOW, None, options or {}, deadline)
        await submission.insert_batch(new, total, FINGERPRINT)
    if opened:
        await batches.open_batch(batch_id, WORKFLOW)
    return batch_id


def completions(items: Sequence[ClaimedItem]) -> list[Completion]:
    """A result for each claimed item."""
    return [Completion(item.seq, item.claim_id, '{"done": true}') for item in items]


def failures(items: Sequence[ClaimedItem]) -> list[Verdict]:
    """A failure for each claimed item."""
    return [Verdict(item.seq, item.claim_id, {"type": "Broken"}, attempts=1) for item in items]


async def statuses(pool: Pool, batch_id: UUID) -> list[str]:
    """The rows' states in seq order."""
    rows = await pool.fetch("select status from fanout.results where batch_id = $1 order by seq", batch_id)
    return [row["status"] for row in rows]


async def kinds(batches: BatchStore, batch_id: UUID) -> list[str]:
    """The kinds of the batch's events in order."""
    return [event["kind"] for event in await batches.read_events(batch_id, 0)]
