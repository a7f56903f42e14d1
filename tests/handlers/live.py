"""Handlers of batches that are watched."""

import asyncio
from pathlib import Path
from typing import Any

from fanout import PermanentError, handler
from tests.handlers.gate import until_there


@handler("test.live")
async def live(payload: dict[str, Any]) -> None:
    """Waits for the file `waits_for`, then takes as long as its payload says, and fails if that wants it."""
    if "waits_for" in payload:
        await until_there(Path(payload["waits_for"]))
    await asyncio.sleep(payload.get("seconds", 0.02))
    if payload.get("fails"):
        raise PermanentError("as asked", code="asked")
