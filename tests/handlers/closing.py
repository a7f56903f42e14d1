"""Handlers that fail as they are told to, and one that is told how a batch ended."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from fanout import Context, PermanentError, handler

LEDGER = Path(os.environ["FANOUT_TEST_LEDGER"])


@handler("closing.work")
async def work(payload: str, ctx: Context) -> str:
    """Takes a moment, then works or fails; what is mended fails in the first epoch only."""
    with (LEDGER / f"start-{ctx.seq}").open("a") as lines:
        lines.write(f"{ctx.epoch}\n")
    await asyncio.sleep({"long": 30, "slow": 3}.get(payload, 0.05))
    if payload == "bad" or (payload == "mended" and ctx.epoch == 1):
        raise PermanentError("no")
    return payload


@handler("closing.hook")
def hook(payload: dict[str, Any], ctx: Context) -> None:
    """Writes down what it was told and by which id; waits while there is a file `hold`."""
    with (LEDGER / "hook").open("a") as lines:
        lines.write(json.dumps([ctx.idempotency_key, ctx.key, payload]) + "\n")
    while (LEDGER / "hold").exists():
        time.sleep(0.02)
