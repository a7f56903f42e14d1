"""Handlers that book into a table of their own, in the transaction that settles their item."""

import asyncio
import os
from typing import Any

from fanout import Context, handler
from tests.bookings import BOOK
from tests.handlers.cases import note


@handler("ledger.book", max_attempts=4)
async def book(payload: dict[str, Any], ctx: Context) -> int:
    """Books the amount, and may fail before it, in the block, after it, or wait in it."""
    note(ctx)
    async with ctx.transaction() as tx:
        await tx.connection.execute(BOOK, ctx.batch_id, ctx.seq, payload["amount"], str(os.getpid()))
        await asyncio.sleep(payload.get("seconds", 0))
        if payload.get("fail") == "inside" and ctx.attempt < 3:
            raise ConnectionError("a rolled back booking")
        if payload.get("fail") == "no complete" and ctx.attempt < 3:
            return 0
        if payload.get("fail") in ("commit", "rollback") and ctx.attempt < 3:
            await tx.connection.execute(payload["fail"])
        if payload.get("fail") == "unstorable":
            tx.complete({1, object()})
        result: int = tx.complete(payload["amount"])
    if payload.get("fail") == "after":
        raise ConnectionError("after the commit nothing can fail")
    if payload.get("fail") == "again":
        async with ctx.transaction():
            pass
    return result if payload.get("fail") != "other" else -1


@handler("ledger.left", max_attempts=1)
async def left(payload: Any, ctx: Context) -> str:
    """Enters a transaction and never leaves it."""
    block = ctx.transaction()
    tx = await block.__aenter__()
    await tx.connection.execute(BOOK, ctx.batch_id, ctx.seq, 1, "leaked")
    return str(tx.complete("leaked"))


@handler("ledger.thread", max_attempts=1)
def in_thread(payload: Any, ctx: Context) -> None:
    """Asks for what is not there."""
    ctx.transaction()
