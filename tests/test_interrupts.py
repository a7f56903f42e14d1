"""A signal ends a command's work, whatever it is doing, and none is lost."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fanout.cli import interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The session's own handlers are back after each test."""
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    interrupts.raise_at_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_in_code_that_would_swallow_its_exception_ends_the_work(number: int) -> None:
    """As asyncpg does: it sends its statement, and then waits for the answer in a `finally` that returns."""
    ended: list[str] = []

    async def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            try:
                return await for_ever()  # noqa: B012
            finally:
                ended.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(work())
    assert ended == ["cleaned up"]


def test_a_blocking_read_is_broken_off() -> None:
    reading, writing = os.pipe()

    async def work() -> bytes:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        return os.read(reading, 1)

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(work())
    os.close(reading)
    os.close(writing)


def test_a_second_signal_cancels_the_cleaning_up() -> None:
    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        with suppress(asyncio.CancelledError):
            await for_ever()
        signal.raise_signal(signal.SIGINT)
        await for_ever()

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(work())


def test_work_that_is_not_interrupted_answers_and_leaves_the_handlers_as_they_were() -> None:
    before = [signal.getsignal(number) for number in (*interrupts.SIGNALS, signal.SIGALRM)]

    async def work() -> int:
        return 7

    assert interrupts.run(work()) == 7
    assert [signal.getsignal(number) for number in (*interrupts.SIGNALS, signal.SIGALRM)] == before
