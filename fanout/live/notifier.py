"""Tells all listeners which batches this process has changed, beside the work and never in its way."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from fanout.store import Ticks

EVERY_SECONDS = 0.25
LIMIT_SECONDS = 3.0
LAST_SECONDS = 1.0

log = logging.getLogger("fanout.live")


class Notifier:
    """Sends a tick for each changed batch: the first at once, then at most four a second in all.

    A tick that cannot be sent is forgotten, and so are those of a process that is killed: listeners look by themselves
    every few seconds.
    """

    def __init__(self, ticks: Ticks, on_told: Callable[[float], None] = lambda seconds: None) -> None:
        """`on_told` is given how long after its change each batch was told of."""
        self._ticks = ticks
        self._on_told = on_told
        self._changed: dict[UUID, float] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def note(self, batch_id: UUID) -> None:
        """The batch has changed. Costs next to nothing, and may be called any number of times."""
        self._changed.setdefault(batch_id, time.monotonic())
        self._news.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def waiting(self) -> int:
        """How many batches still have to be told of."""
        return len(self._changed)

    async def close(self) -> None:
        """Sends what is left, within a second, and ends."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._send()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._send()
            await asyncio.sleep(EVERY_SECONDS)

    async def _send(self) -> None:
        # What changes from here on is told by the next tick: a reader of this one may have looked before.
        changed, self._changed = self._changed, {}
        if not changed:
            return
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._ticks.send_ticks([*changed])
        except asyncio.CancelledError:
            self._changed = changed | self._changed
            raise
        except Exception as error:
            # Whatever it is, the work goes on; and it is said once, not four times a second.
            self._say(error)
        else:
            self._failing = False
            now = time.monotonic()
            for since in changed.values():
                self._on_told(now - since)

    def _say(self, error: Exception) -> None:
        if not self._failing:
            log.warning("live progress could not be told: %s; readers look every few seconds", type(error).__name__)
        self._failing = True
