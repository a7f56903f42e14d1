"""Watches the handlers' loop from outside: whether it goes on, and what stands on it when it does not."""

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

BLOCKED_SECONDS = 2.0


class Running(Protocol):
    """A work whose handler may be a task on the loop."""

    @property
    def running(self) -> Any:
        """The task, if it is one."""


Item = TypeVar("Item", bound=Running)


@dataclass(frozen=True, slots=True)
class Blockage(Generic[Item]):
    """The loop has stood still for `seconds`; `work` blocks it, unless a task does that a handler started."""

    work: Item | None
    task: str
    place: str
    since: float
    seconds: float
    over: bool = False

    @classmethod
    def of(
        cls, loop: asyncio.AbstractEventLoop, thread: Thread, works: Iterable[Item], seconds: float
    ) -> "Blockage[Item]":
        """Looks from another thread at the task that the loop is in, and at the line that it has reached."""
        task = asyncio.current_task(loop)
        work = next((work for work in list(works) if task is not None and work.running is task), None)
        name = "no task" if task is None else getattr(task.get_coro(), "__qualname__", task.get_name())
        return cls(work, name, _place(thread), time.monotonic() - seconds, seconds)


class LoopWatch(Generic[Item]):
    """A clock that stands still while the handlers' loop does, and word of a loop that does so for two seconds.

    `on_blocked` is called then, and once more, with `over` set, when the loop goes on.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread: Thread, on_blocked: Callable[[Blockage[Item]], None]
    ) -> None:
        self.clock = 0.0
        self._loop = loop
        self._thread = thread
        self._on_blocked = on_blocked
        self._answered = True
        self._before = self._heard = time.monotonic()
        self._blockage: Blockage[Item] | None = None

    def tick(self, now: float, works: list[Item]) -> None:
        """To be called every now and then from the engine's loop, with what runs."""
        if self._answered:
            self.clock += now - self._before
            self._heard = now
            self._answered = False
            self._loop.call_soon_threadsafe(self._answer)
            self._tell_of_its_end(now)
        elif self._blockage is None and now - self._heard > BLOCKED_SECONDS:
            self._blockage = Blockage.of(self._loop, self._thread, works, now - self._heard)
            self._on_blocked(self._blockage)
        self._before = now

    def _answer(self) -> None:
        self._answered = True

    def _tell_of_its_end(self, now: float) -> None:
        if self._blockage is not None:
            self._on_blocked(replace(self._blockage, seconds=now - self._blockage.since, over=True))
            self._blockage = None


def _place(thread: Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "nowhere"
    [innermost] = traceback.extract_stack(frame, limit=1)
    return f"{innermost.filename}:{innermost.lineno} in {innermost.name}"
