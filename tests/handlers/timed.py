"""Handlers that tell when they start and end: one file a process, so that 10,000 items are cheap to follow."""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from temporalio.common import RetryPolicy

from fanout import Context, PermanentError, RetryLater, handler

LEDGER = Path(os.environ["FANOUT_TEST_LEDGER"])
BACK_OFF = timedelta(seconds=float(os.environ.get("FANOUT_TEST_BACK_OFF", "1")))
SLOWLY = RetryPolicy(initial_interval=BACK_OFF, maximum_interval=BACK_OFF, maximum_attempts=3)


def note(ctx: Context, word: str, moment: float | None = None) -> None:
    """Writes a line: word, batch, item, and the time now unless another is given."""
    with (LEDGER / f"timeline-{os.getpid()}").open("a") as lines:
        lines.write(f"{word} {ctx.batch_id} {ctx.seq} {time.time() if moment is None else moment}\n")


class TooMany(Exception):
    """What an HTTP library raises for an answer of 429."""

    def __init__(self, retry_after: str) -> None:
        super().__init__("429 Too Many Requests")
        self.response = SimpleNamespace(status_code=429, headers={"Retry-After": retry_after})


@handler("timed.work")
async def work(payload: dict[str, Any], ctx: Context) -> str:
    """Sleeps for `seconds`, then works or, with `fail`, loses its connection."""
    note(ctx, "start")
    await asyncio.sleep(payload["seconds"])
    note(ctx, "end")
    if payload.get("fail"):
        raise ConnectionError("reset")
    return "done"


@handler("timed.once", max_attempts=1)
async def once(payload: dict[str, float], ctx: Context) -> str:
    """Has one attempt only."""
    note(ctx, "start")
    await asyncio.sleep(payload["seconds"])
    note(ctx, "end")
    return "done"


@handler("timed.later", retry_policy=SLOWLY)
async def later(payload: Any, ctx: Context) -> int:
    """Loses its connection the first time."""
    note(ctx, "start")
    if ctx.attempt == 1:
        raise ConnectionError("reset")
    return ctx.attempt


@handler("timed.mended")
async def mended(payload: dict[str, Any], ctx: Context) -> str:
    """Works for `seconds`; what is `bad` fails in the first epoch."""
    note(ctx, "start")
    if payload.get("bad") and ctx.epoch < 2:
        raise PermanentError("not yet")
    await asyncio.sleep(payload["seconds"])
    return "done"


@handler("timed.loop")
async def loop(payload: Any, ctx: Context) -> str:
    """Goes round for 200 s and does not swallow a cancel."""
    note(ctx, "start")
    try:
        for _ in range(2_000):
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        note(ctx, "told")
        raise
    return "never told"


@handler("timed.thread")
def thread(payload: Any, ctx: Context) -> str:
    """Looks ten times a second for 20 s whether it is to stop."""
    note(ctx, "start")
    for _ in range(200):
        time.sleep(0.1)
        if ctx.cancelled:
            note(ctx, "told")
            return "told"
    return "never told"


@handler("timed.throttled")
async def throttled(payload: dict[str, Any], ctx: Context) -> str:
    """Takes `seconds`; the first time it then asks for a time that is `after` seconds away, in the way `how`."""
    note(ctx, "start")
    await asyncio.sleep(payload["seconds"])
    note(ctx, "end")
    if _came_before(ctx):
        return "done"
    error, due = throttle(payload["how"], payload["after"])
    note(ctx, "until", due)
    raise error


def throttle(how: str, after: float) -> tuple[Exception, float]:
    """An error that asks for a later time, and that time; a header's date has whole seconds."""
    now = time.time()
    match how:
        case "duration":
            return RetryLater(after=timedelta(seconds=after)), now + after
        case "moment":
            return RetryLater(after=datetime.fromtimestamp(now + after, UTC)), now + after
        case "header":
            return TooMany(str(int(after))), now + int(after)
        case _:
            date = datetime.fromtimestamp(int(now + after), UTC)
            return TooMany(format_datetime(date, usegmt=True)), date.timestamp()


def _came_before(ctx: Context) -> bool:
    """Whether any process has worked on the item before."""
    try:
        os.close(os.open(LEDGER / f"seen-{ctx.batch_id}-{ctx.seq}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return True
    return False
