"""Handlers of batches that are watched."""

import asyncio
from typing import Any

from fanout import PermanentError, handler


@handler("test.live")
async def live(payload: dict[str, Any]) -> None:
    """Takes as long as its payload says, and fails if that wants it."""
    await asyncio.sleep(payload.get("seconds", 0.02))
    if payload.get("fails"):
        raise PermanentError("as asked", code="asked")
