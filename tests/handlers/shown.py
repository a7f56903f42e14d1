"""A handler whose items do what their payload says, for batches that somebody looks at."""

import asyncio
from typing import Any

from fanout import Context, PermanentError, handler


@handler("test.shown")
async def shown(payload: dict[str, Any], ctx: Context) -> Any:
    """Takes `seconds`; up to the epoch `until`, 1 by default, raises the type `raises` with `code`; else `returns`."""
    await asyncio.sleep(payload.get("seconds", 0.02))
    if "raises" in payload and ctx.epoch <= payload.get("until", 1):
        error = type(payload["raises"], (PermanentError,), {})
        raise error(payload.get("message", "as asked"), code=payload.get("code", "asked"))
    return payload.get("returns")
