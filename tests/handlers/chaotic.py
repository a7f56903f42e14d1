"""Handlers of the chaos campaign: each result can be computed from the payload, however often the item was run."""

import asyncio
import os
import select
import time
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from temporalio.common import RetryPolicy

from fanout import Context, PermanentError, RetryLater, handler
from tests.bookings import BOOK

FOLDER = Path(os.environ.get("FANOUT_TEST_LEDGER", "."))
QUICK = RetryPolicy(
    initial_interval=timedelta(seconds=0.1), maximum_interval=timedelta(seconds=0.5), maximum_attempts=5
)


class Task(BaseModel):
    """What an item is to do."""

    number: int
    seconds: float = 0.0
    failures: int = 0
    """How many attempts fail before one works; the row counts them."""
    dies: bool = False
    waits: bool = False
    hopeless: bool = False


def result_of(number: int) -> int:
    """What an item with this number comes to."""
    return number * number + 1


def is_first(ctx: Context, word: str) -> bool:
    """Whether no process has asked this of the item before."""
    try:
        (FOLDER / f"{word}-{ctx.batch_id}-{ctx.seq}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@handler("chaos.loop", retry_policy=QUICK)
async def loop(task: Task, ctx: Context) -> int:
    """Waits, then works, fails or asks for a later time."""
    await asyncio.sleep(task.seconds)
    if task.hopeless:
        raise PermanentError("no", code="hopeless")
    if task.waits and is_first(ctx, "waits"):
        raise RetryLater("busy", after=timedelta(seconds=0.5))
    if ctx.attempt <= task.failures:
        raise ConnectionError("not yet")
    return result_of(task.number)


@handler("chaos.ledger", retry_policy=QUICK)
async def ledger(task: Task, ctx: Context) -> int:
    """Books its result into a user's table, in the transaction that settles the item; may fail in it."""
    async with ctx.transaction() as tx:
        amount = result_of(task.number)
        await tx.connection.execute(BOOK, ctx.batch_id, ctx.seq, amount, str(os.getpid()))
        await asyncio.sleep(task.seconds)
        if ctx.attempt <= task.failures:
            raise ConnectionError("not yet")
        tx.complete(amount)
    return amount


@handler("chaos.thread", retry_policy=QUICK)
def thread(task: Task) -> int:
    """Blocks a thread."""
    # Under a libfaketime that leaves the monotonic clock alone, `time.sleep` is an error.
    select.select([], [], [], task.seconds)
    return result_of(task.number)


@handler("chaos.child", run_in="process", retry_policy=QUICK)
def child(task: Task, ctx: Context) -> int:
    """Works in a process, which may die the first time."""
    time.sleep(task.seconds)
    if task.dies and is_first(ctx, "dies"):
        os._exit(137)
    return result_of(task.number)
