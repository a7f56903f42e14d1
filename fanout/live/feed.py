"""One batch's readers share one reading of it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from fanout.live.messages import Kind, Message
from fanout.live.start import Start
from fanout.status import Status
from fanout.store import OUTAGE, BatchStore

LEAST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
PAUSES_PER_READ = 9
"""Reading takes at most a tenth of the time: to count what is processing costs more, the larger the batch."""
AGAIN_SECONDS = 0.5
STALE_SECONDS = 5.0
"""A batch that cannot be read for so long is told to its readers as stale."""
PAGE = 500
RECENT = 500
"""So many events are kept for all readers; who is further behind reads from the table, a page at a time."""

log = logging.getLogger("fanout.live")


@dataclass(frozen=True)
class View:
    """One reading: the status, and the newest event, read before it; so no event up to there is newer."""

    status: Status
    head: int

    @cached_property
    def snapshot(self) -> Message:
        """As the first message of a stream."""
        return Message.of_status(Kind.SNAPSHOT, self.status)

    @cached_property
    def progress(self) -> Message:
        """As a later one."""
        return Message.of_status(Kind.PROGRESS, self.status)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no newer view, and since when."""

    error: Exception
    since: float

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self.since


@dataclass(eq=False, slots=True)
class Reader:
    """One reader's mailbox: it holds that there is something new, and nothing else, however slow the reader is."""

    news: asyncio.Event = field(default_factory=asyncio.Event)


class Feed:
    """Reads one batch when it is told that something changed, and lets all its readers know."""

    def __init__(self, batch_id: UUID, store: BatchStore, gate: asyncio.Semaphore) -> None:
        self.batch_id = batch_id
        self.view: View | None = None
        self.trouble: Trouble | None = None
        self.over = False
        """There is no such batch any more, or the process ends."""
        self.readers: dict[Reader, None] = {}
        self._store = store
        self._gate = gate
        self._recent: deque[Message] = deque(maxlen=RECENT)
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def look(self) -> None:
        """There may be something new."""
        self._changed.set()

    def end(self) -> None:
        """Reads no more; readers come to their end."""
        self.over = True
        self._task.cancel()
        self._wake()

    async def messages(self, start: Start, patience: float | None) -> AsyncGenerator[Message, None]:
        """The messages for one reader, up to and with the first `closed` that no retry has followed.

        A database that is away is waited for; after `patience` seconds of that its error is raised.
        """
        reader = Reader()
        self.readers[reader] = None
        try:
            if start.reset is not None:
                yield Message.of_reset(start.reset)
            async for message in self._follow(reader, start, patience):
                yield message
        finally:
            self.readers.pop(reader, None)

    async def _follow(self, reader: Reader, start: Start, patience: float | None) -> AsyncGenerator[Message, None]:
        told: View | None = None
        stale = False
        after = start.after
        while not self.over:
            reader.news.clear()
            view = self.view
            over = stale and self.trouble is None
            if view is None or (view is told and not over) or view.head < start.newest:
                self._check(patience)
                if told is not None and not stale and self._is_stale():
                    stale = True
                    yield Message.of_staleness()
                await reader.news.wait()
                continue
            if told is None or stale or view.status != told.status:
                yield view.snapshot if told is None else view.progress
            told, stale = view, False
            async for message in self._events(after, view.head, patience):
                yield message
                if message.closed_epoch is not None and message.closed_epoch >= view.status.epoch:
                    return
            after = max(after, view.head)

    def _check(self, patience: float | None) -> None:
        if self.trouble is not None and patience is not None and self.trouble.seconds > patience:
            raise self.trouble.error

    def _is_stale(self) -> bool:
        return self.trouble is not None and self.trouble.seconds >= STALE_SECONDS

    async def _events(self, after: int, head: int, patience: float | None) -> AsyncGenerator[Message, None]:
        """The events in (after, head]: from those that all share, before that from the table."""
        while after < head:
            if self._recent and self._recent[0].position <= after + 1:
                until = head
                page = [message for message in self._recent if after < message.position <= head]
            else:
                until = min(head, after + PAGE)
                page = [message for message in await self._read_page(after, patience) if message.position <= until]
            for message in page:
                yield message
            after = until

    async def _read_page(self, after: int, patience: float | None) -> list[Message]:
        began = time.monotonic()
        while True:
            try:
                async with self._gate:
                    events = await self._store.read_events(self.batch_id, after, PAGE)
                return [Message.of_event(event) for event in events]
            except OUTAGE:
                if patience is not None and time.monotonic() - began > patience:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    async def _run(self) -> None:
        while not self.over:
            self._changed.clear()
            began = time.monotonic()
            pause = AGAIN_SECONDS
            # A database that hangs raises nothing for long.
            late = asyncio.get_running_loop().call_later(STALE_SECONDS, self._note_trouble, TimeoutError(), began)
            try:
                if await self._read() or self.trouble is not None:
                    self.trouble = None
                    self._wake()
                pause = (time.monotonic() - began) * PAUSES_PER_READ
            except Exception as error:
                # Readers of one batch must not lose it by whatever went wrong once.
                self._note_trouble(error, began)
            finally:
                late.cancel()
            await asyncio.sleep(min(LONGEST_PAUSE_SECONDS, max(LEAST_PAUSE_SECONDS, pause)))
            if self.trouble is None:
                await self._changed.wait()

    def _note_trouble(self, error: Exception, began: float) -> None:
        if self.trouble is None or type(self.trouble.error) is not type(error):
            fault = None if isinstance(error, OUTAGE) else error
            kind = type(error).__name__
            log.warning("batch %s cannot be read: %s; its readers wait", self.batch_id, kind, exc_info=fault)
        self.trouble = Trouble(error, self.trouble.since if self.trouble else began)
        self._wake()

    async def _read(self) -> bool:
        """Reads the batch; says whether anything is new.

        Events first: a status that is read after them is at least as new, and so is every count in it. Of a closed
        batch the events once more, so that its `closed` is among them.
        """
        fresh: list[Message] = []
        async with self._gate:
            head = await self._read_events(None if self.view is None else self.view.head, fresh)
            batch = await self._store.read_batch(self.batch_id)
            if batch is None:
                self.over = True
                return True
            if batch.closed:
                head = await self._read_events(head, fresh)
            processing = 0 if batch.closed else await self._store.count_processing(self.batch_id)
        view = View(Status.of(batch, processing), head)
        if view == self.view:
            return False
        self._recent.extend(fresh)
        self.view = view
        return True

    async def _read_events(self, head: int | None, fresh: list[Message]) -> int:
        """Puts the events after `head` into `fresh`; answers the newest one's id."""
        if head is None:
            # What came before the first reading is read by each reader, from where it begins.
            position = await self._store.read_position(self.batch_id)
            return 0 if position is None else position.last_id
        while events := await self._store.read_events(self.batch_id, head, PAGE):
            fresh.extend(Message.of_event(event) for event in events)
            head = int(events[-1]["id"])
        return head

    def _wake(self) -> None:
        for reader in self.readers:
            reader.news.set()
