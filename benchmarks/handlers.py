"""The handlers that benchmarks run."""

import asyncio
from typing import Any

from fanout import handler


@handler("bench.noop")
async def noop(payload: Any) -> None:
    """Does nothing."""


@handler("bench.sleep")
async def sleep(payload: float) -> None:
    """Sleeps for `payload` seconds."""
    await asyncio.sleep(payload)
