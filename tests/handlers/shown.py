"""A handler whose items do what their payload says, for batches that somebody looks at."""

import asyncio
from pathlib import Path
from typing import Any

from fanout import Context, PermanentError, handler
from tests.handlers.gate import until_there


@handler("test.shown")
async def shown(payload: dict[str, Any], ctx: Context) -> Any:
    """Waits for the file `waits_for` and takes `seconds`; then raises, or answers `returns`.

    Up to the epoch `until`, 1 by default, it raises the type `raises` with `code`.
    """
    if "waits_for" in payload:
        await until_there(Path(payload["waits_for"]))
    await asyncio.sleep(payload.get("seconds", 0.02))
    if "raises" in payload and ctx.epoch <= payload.get("until", 1):
        error = type(payload["raises"], (PermanentError,), {})
        raise error(payload.get("message", "as asked"), code=payload.get("code", "asked"))
    return payload.get("returns")
