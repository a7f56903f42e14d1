"""What the tests of live progress share: a hub on a database of its own, and readers that note what they get."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from fanout.live import Hub, Message, Notifier
from fanout.store import BatchStore, Pool, Ticks, WorkStore, connect_pool
from tests.store.support import STALE_AFTER, Actor, actors, completions, failures
from tests.support import eventually

LISTENERS = "select pid from pg_stat_activity where application_name = 'fanout listen' and datname = current_database()"


@dataclass
class Notes:
    """What one reader got."""

    messages: list[Message] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    def kinds(self) -> list[str]:
        return [message.kind for message in self.messages]

    def ids(self) -> list[int]:
        return [message.id for message in self.messages if message.id is not None]

    def events(self) -> list[str]:
        return [message.data["kind"] for message in self.messages if message.id is not None]

    def settled(self) -> list[int]:
        """The counts of every status, in order."""
        return [message.status.settled for message in self.messages if message.status is not None]


@dataclass
class Live:
    """A hub, and what changes batches in the same process."""

    url: str
    pool: Pool
    batches: BatchStore
    work: WorkStore
    hub: Hub

    async def read(self, batch_id: UUID, notes: Notes, after: int | None = None) -> None:
        """Reads a stream to its end."""
        start = await self.hub.find_start(batch_id, after)
        async with aclosing(self.hub.messages(batch_id, start)) as messages:
            async for message in messages:
                notes.messages.append(message)
                notes.began.set()

    @asynccontextmanager
    async def reading(self, batch_id: UUID, after: int | None = None) -> AsyncIterator[Notes]:
        """A reader beside the block, from its snapshot on; the block may end before the stream does."""
        notes = Notes()
        task = asyncio.create_task(self.read(batch_id, notes, after))
        try:
            await asyncio.wait_for(notes.began.wait(), 30)
            yield notes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def listeners(self) -> list[int]:
        """The LISTEN connections of this database."""
        return [row["pid"] for row in await self.pool.fetch(LISTENERS)]

    async def heard(self) -> list[int]:
        """The same, once there is one."""
        return await eventually(self.listeners)


@asynccontextmanager
async def live(url: str, listen_url: str | None = None) -> AsyncIterator[Live]:
    pool = await connect_pool(url, purpose="live", size=10)
    ticks = Ticks(pool)
    notifier = Notifier(ticks)
    batches = BatchStore(pool, STALE_AFTER, on_change=notifier.note)
    work = WorkStore(pool, STALE_AFTER, on_change=notifier.note)
    hub = Hub(batches, ticks, listen_url or url)
    try:
        yield Live(url, pool, batches, work, hub)
    finally:
        await hub.close()
        await notifier.close()
        await pool.close()


async def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits until a plain condition is true."""

    async def checked() -> bool:
        return check()

    await eventually(checked, seconds)


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[Actor]:
    """Somebody in another process, so to say: it changes batches and tells nobody."""
    async with actors(url, 1) as (actor,):
        yield actor


async def settle(live: Live, actor: Actor, batch_id: UUID, count: int, failing: int = 0) -> None:
    """Claims the next `count` items, fails the first `failing` of them and completes the others; this is told."""
    await actor.refresh()
    claimed = (await actor.claim(batch_id, limit=count)).items
    if failing:
        await live.work.fail(batch_id, failures(claimed[:failing]), slot=0)
    if claimed[failing:]:
        await live.work.complete(batch_id, completions(claimed[failing:]), slot=0)
