"""Ctrl-C and SIGTERM end a command between two steps of its work, never in the middle of one."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

Answer = TypeVar("Answer")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
BLOCKED_SECONDS = 0.5
"""A loop that does not get to its cancel for so long stands in a blocking read, as of a silent pipe."""


def raise_at_signals() -> None:
    """From now on both signals raise KeyboardInterrupt wherever the program is."""
    for number in SIGNALS:
        signal.signal(number, _raise)


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """`asyncio.run`, which a signal ends: the work is cancelled, and then KeyboardInterrupt is raised.

    Raised in the middle of a step it could end the process by SIGSEGV, in asyncpg's compiled code, or be lost: asyncpg
    returns out of a `finally`, and waits for the answer to a statement that it has not sent. Only a blocked loop is
    broken off like that. A second signal cancels the cleaning up.
    """
    try:
        return asyncio.run(_cancellable(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _cancellable(work: Coroutine[Any, Any, Answer]) -> Answer:
    task = asyncio.current_task()
    assert task is not None
    with _cancelling(asyncio.get_running_loop(), task):
        return await work


@contextmanager
def _cancelling(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> Iterator[None]:
    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        task.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(cancel)
        signal.setitimer(signal.ITIMER_REAL, BLOCKED_SECONDS)

    handlers = {**dict.fromkeys(SIGNALS, interrupt), signal.SIGALRM: _raise}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
