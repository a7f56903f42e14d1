"""All readers of one process: one LISTEN connection, and one feed for each batch that somebody watches."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from fanout.errors import UnknownBatch
from fanout.live.feed import Feed
from fanout.live.listening import Listening
from fanout.live.messages import Message
from fanout.live.start import Start, find_start
from fanout.store import BatchStore, Ticks

LOOK_SECONDS = 4.0
LOOK_SECONDS_DEGRADED = 2.0
READS_AT_ONCE = 4
"""Of the client's connections so many at most serve readers, however many there are."""


class Hub:
    """Streams of any number of batches to any number of readers; works from its first use on, until `close`.

    Hints only make it quicker: without any it looks at every watched batch every two to four seconds.
    """

    def __init__(self, store: BatchStore, ticks: Ticks, listen_url: str) -> None:
        self._store = store
        self._listening = Listening(listen_url, ticks, self._look_at, self._look_at_all)
        self._feeds: dict[UUID, Feed] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    @property
    def degraded(self) -> bool:
        """Whether LISTEN does not work, so that news are seconds late."""
        return self._listening.degraded

    @property
    def readers(self) -> int:
        """How many streams are open now."""
        return sum(len(feed.readers) for feed in self._feeds.values())

    async def find_start(self, batch_id: UUID, last_event_id: str | int | None) -> Start:
        """Where the stream of a reader begins that has had all events up to an id. Raises UnknownBatch."""
        async with self._gate:
            position = await self._store.read_position(batch_id)
        if position is None:
            raise UnknownBatch(str(batch_id))
        return find_start(position, last_event_id)

    async def messages(
        self, batch_id: UUID, start: Start, patience: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """The messages of one batch from `start` on, up to and with its next `closed` that no retry has followed.

        First a `snapshot`, then every event once and in order, and between them `progress`, of which a slow reader gets
        only the newest, and `stale` where the batch cannot be read. A database that is away is waited for, at most
        `patience` seconds where that is given.
        """
        if start.over or self._closed:
            return
        self._begin()
        feed = self._feeds.get(batch_id)
        if feed is None or feed.over:
            feed = self._feeds[batch_id] = Feed(batch_id, self._store, self._gate)
        feed.look()
        try:
            async with aclosing(feed.messages(start, patience)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._leave(feed)

    def _leave(self, feed: Feed) -> None:
        if feed.readers:
            return
        feed.end()
        if self._feeds.get(feed.batch_id) is feed:
            del self._feeds[feed.batch_id]

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listening.run()), asyncio.create_task(self._look_by_itself())]

    async def close(self) -> None:
        """Ends every stream and the LISTEN connection."""
        self._closed = True
        for feed in list(self._feeds.values()):
            feed.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look_by_itself(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS_DEGRADED if self.degraded else LOOK_SECONDS)
            self._look_at_all()

    def _look_at(self, batch_id: UUID) -> None:
        feed = self._feeds.get(batch_id)
        if feed is not None:
            feed.look()

    def _look_at_all(self) -> None:
        for feed in self._feeds.values():
            feed.look()
