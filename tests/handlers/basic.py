"""Small handlers for tests and benchmarks."""

import asyncio
import time
from typing import Any

from fanout import Context, PermanentError, handler


@handler("test.noop")
async def noop(payload: Any) -> None:
    """Does nothing."""


@handler("test.echo")
async def echo(payload: Any) -> Any:
    """Returns what it was given."""
    return payload


@handler("test.sleep")
async def sleep(payload: dict[str, float]) -> float:
    """Sleeps for `seconds`."""
    await asyncio.sleep(payload["seconds"])
    return payload["seconds"]


@handler("test.thread")
def block(payload: dict[str, float]) -> float:
    """Blocks its thread for `seconds`."""
    time.sleep(payload["seconds"])
    return payload["seconds"]


@handler("test.fail", max_attempts=2)
async def fail(payload: Any, ctx: Context) -> None:
    """Fails for good."""
    raise PermanentError(f"item {ctx.item_key} cannot work", code="hopeless")


@handler("test.flaky", max_attempts=4)
async def flaky(payload: int, ctx: Context) -> int:
    """Fails `payload` times before it works; the row counts."""
    if ctx.attempt <= payload:
        raise ConnectionError("not yet")
    return ctx.attempt
