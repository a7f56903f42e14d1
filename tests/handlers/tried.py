"""Handlers for `try`: one for each way to end."""

import os
import threading
import time
from datetime import timedelta
from typing import Any

from fanout import Context, RetryLater, handler


@handler("tried.loop")
async def on_loop(payload: dict[str, int], ctx: Context) -> dict[str, Any]:
    """Answers what it was given, and prints where an answer belongs."""
    print("a handler's own words")
    return {"payload": payload, "attempt": ctx.attempt}


@handler("tried.thread")
def in_thread(payload: Any) -> str:
    """Answers its thread's name."""
    return threading.current_thread().name


@handler("tried.process", run_in="process")
def in_process(payload: int) -> int:
    """Answers whether it runs in the process that is `payload`; dies of 0."""
    if payload == 0:
        os._exit(9)
    return int(os.getpid() == payload)


@handler("tried.slow", timeout=timedelta(seconds=0.3), max_attempts=1)
def slow(payload: Any) -> None:
    """Overruns."""
    time.sleep(30)


@handler("tried.later")
async def later(payload: Any) -> None:
    """Is not to be asked now."""
    raise RetryLater("busy", after=timedelta(seconds=5))
