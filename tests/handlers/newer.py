"""A handler that came with a later deploy."""

import asyncio
from typing import Any

from fanout import handler


@handler("newer.h2")
async def h2(payload: Any) -> str:
    """Works where it is known."""
    await asyncio.sleep(0.05)
    return "new"
