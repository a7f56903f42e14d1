"""Handlers that log, in every mode, and one that only waits."""

import logging
import threading
from time import sleep
from typing import Any

from fanout import Context, handler

FORGED = "fine\n2026-01-01 00:00:00.000 ERROR fanout.engine the database is gone\u2028\x1b[31mred"

log = logging.getLogger("somebody.elses")


def say(payload: Any, ctx: Context) -> None:
    ctx.logger.warning("%s", payload, extra={"pages": 3, "batch_id": "another"})
    log.warning("a library's own line")


@handler("test.talk")
async def talk(payload: str, ctx: Context) -> str:
    say(payload, ctx)
    return threading.current_thread().name


@handler("test.talk-thread")
def talk_in_a_thread(payload: str, ctx: Context) -> None:
    say(payload, ctx)
    # Where the thread goes on to other items, nothing of this one is left.
    sleep(0.01)


@handler("test.talk-process", run_in="process")
def talk_in_a_child(payload: str, ctx: Context) -> None:
    say(payload, ctx)
