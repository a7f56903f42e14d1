"""A handler whose code gets better with each epoch."""

import asyncio

from fanout import Context, PermanentError, handler


@handler("test.mended", permanent=(LookupError,))
async def mended(payload: str, ctx: Context) -> str:
    """Fails for bad items in epoch 1, for worse ones in epochs 1 and 2."""
    if payload == "slow":
        await asyncio.sleep(1)
    if payload == "bad" and ctx.epoch < 2:
        raise LookupError("not yet")
    if payload == "worse" and ctx.epoch < 3:
        raise PermanentError("still not")
    return payload
