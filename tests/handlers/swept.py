"""Handlers for the sweeper's tests: the ledger of their starts is kept apart for each batch."""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from fanout import Context, RetryLater, handler

LEDGER = Path(os.environ["FANOUT_TEST_LEDGER"])


def note(ctx: Context) -> int:
    """Writes down a start; answers how many the item has had."""
    file = LEDGER / f"{ctx.batch_id}-{ctx.seq}"
    with file.open("a") as lines:
        lines.write(f"{time.monotonic()}\n")
    return len(file.read_text().splitlines())


@handler("swept.work")
async def work(payload: float, ctx: Context) -> float:
    """Takes so many seconds."""
    note(ctx)
    await asyncio.sleep(payload)
    return payload


@handler("swept.later")
async def later(payload: float, ctx: Context) -> int:
    """Asks once for a time that many seconds later."""
    starts = note(ctx)
    if starts == 1:
        raise RetryLater("busy", after=timedelta(seconds=payload))
    return starts
