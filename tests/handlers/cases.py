"""Handlers of the field cases; each start is a line in the ledger, a folder that the test names."""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.common import RetryPolicy

from fanout import Context, PermanentError, RetryLater, handler

LEDGER = Path(os.environ["FANOUT_TEST_LEDGER"])
QUICK = RetryPolicy(
    initial_interval=timedelta(seconds=0.05), maximum_interval=timedelta(seconds=0.05), maximum_attempts=3
)
Namesake = type("PermanentError", (Exception,), {})


class CardDeclined(PermanentError):
    """Permanent, as its base is."""


def note(ctx: Context, word: str = "start") -> int:
    """Writes a line: word, item, time; answers how many such lines the item has."""
    file = LEDGER / f"{word}-{ctx.seq}"
    with file.open("a") as lines:
        lines.write(f"{time.monotonic()}\n")
    return len(file.read_text().splitlines())


def opened() -> bool:
    """Whether the test lets handlers go on."""
    return (LEDGER / "go").exists()


def from_cause(error: BaseException) -> BaseException:
    """`error`, raised from a permanent one."""
    error.__cause__ = PermanentError("the cause")
    return error


def chain(depth: int) -> BaseException:
    """An error with that many causes."""
    error: BaseException = ValueError("root")
    for number in range(depth):
        outer = ValueError(f"level {number}")
        outer.__cause__ = error
        error = outer
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "card": lambda: CardDeclined("no"),
    "from cause": lambda: from_cause(RuntimeError("x")),
    "transient from cause": lambda: from_cause(ConnectionError("x")),
    "group": lambda: ExceptionGroup("g", [PermanentError("y")]),
    "namesake": lambda: Namesake("x"),
    "timeout": lambda: TimeoutError(),
    "huge": lambda: ValueError("e" * 5_000_000),
    "huge permanent": lambda: PermanentError("e" * 5_000_000),
    "chain": lambda: chain(2_000),
}


@handler("case.raise", retry_policy=QUICK)
async def fail(payload: str, ctx: Context) -> None:
    """Raises the error of that name."""
    note(ctx)
    raise ERRORS[payload]()


@handler("case.huge")
async def huge(payload: Any) -> None:
    """Fails for good, in many words."""
    raise PermanentError("e" * 5_000_000)


@handler("case.type")
async def tell(payload: Any, ctx: Context) -> list[str]:
    """What it was given, as text that no JSON can change."""
    note(ctx)
    await asyncio.sleep(0.05)
    return [type(payload).__name__, repr(payload)]


@handler("case.mixed", retry_policy=QUICK)
async def mixed(payload: bool, ctx: Context) -> str:
    """Works, or fails for good."""
    note(ctx)
    if not payload:
        raise PermanentError("no")
    return "yes"


@handler("case.later")
async def later(payload: float, ctx: Context) -> int:
    """Asks once for a later time."""
    if note(ctx) == 1:
        raise RetryLater("busy", after=timedelta(seconds=payload))
    return ctx.attempt


@handler("case.obeys")
async def obeys(payload: Any, ctx: Context) -> None:
    """Waits until it is cancelled."""
    note(ctx)
    try:
        await asyncio.sleep(600)
    finally:
        note(ctx, "end")


@handler("case.listens")
def listens(payload: Any, ctx: Context) -> str:
    """A thread that looks from time to time; it ends as if nothing had been."""
    note(ctx)
    while not ctx.cancelled:
        time.sleep(0.02)
    note(ctx, "end")
    return "told"


@handler("case.deaf")
async def deaf(payload: Any, ctx: Context) -> str:
    """Swallows every cancellation until the test lets it go."""
    note(ctx)
    while not opened():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            note(ctx, "swallowed")
    note(ctx, "end")
    return "too late"


@handler("case.sleeps_or_fails")
def sleeps_or_fails(payload: dict[str, int], ctx: Context) -> None:
    """Asks for a much later time, or fails for good a while after the others have asked."""
    if "after" in payload:
        note(ctx)
        raise RetryLater("busy", after=timedelta(seconds=payload["after"]))
    while len(list(LEDGER.glob("start-*"))) < 5:
        time.sleep(0.02)
    time.sleep(2)
    raise PermanentError("no")
