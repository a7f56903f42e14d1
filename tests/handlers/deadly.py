"""Handlers that end their process, block their loop or eat its memory."""

import asyncio
import os
import time
from datetime import timedelta
from typing import Any

from fanout import Context, handler
from tests.handlers.cases import note

MEGABYTE = 1_048_576


@handler("deadly.loop", max_attempts=3)
async def on_loop(payload: dict[str, Any], ctx: Context) -> str:
    """Ends its process if it is told to; else takes `seconds`."""
    note(ctx)
    await asyncio.sleep(payload.get("seconds", 0))
    if payload.get("deadly"):
        os._exit(137)
    return "alive"


@handler("deadly.quick", max_attempts=3)
async def quick(payload: bool) -> str:
    """Ends its process if it is told to; as short as an item can be."""
    if payload:
        os._exit(137)
    return "alive"


@handler("deadly.thread", max_attempts=3)
def in_thread(payload: bool, ctx: Context) -> int:
    """Ends its process if it is told to; else tells which it is."""
    note(ctx)
    if payload:
        os._exit(137)
    return os.getpid()


@handler("deadly.child", run_in="process", max_attempts=2, timeout=timedelta(seconds=10), memory_limit=256 * MEGABYTE)
def in_child(payload: str, ctx: Context) -> str:
    """Dies, hangs or eats, in a process of its own."""
    note(ctx)
    match payload:
        case "exit":
            os._exit(137)
        case "hang":
            time.sleep(600)
        case "eat":
            return "x" * (1024 * MEGABYTE)
    return "alive"


@handler("deadly.block")
async def block(payload: float, ctx: Context) -> str:
    """Blocks the loop that it shares."""
    note(ctx)
    time.sleep(payload)  # noqa: ASYNC251
    return "done"
