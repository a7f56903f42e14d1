"""One handler whose items end in every way; those that are held wait for a file `go` that the test makes."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from temporalio.common import RetryPolicy

from fanout import Context, PermanentError, handler
from tests.handlers.gate import until_there

FOLDER = Path(os.environ["FANOUT_TEST_LEDGER"])
QUICK = RetryPolicy(
    initial_interval=timedelta(seconds=0.05), maximum_interval=timedelta(seconds=0.05), maximum_attempts=5
)


@handler("fault.mixed", retry_policy=QUICK)
async def mixed(payload: str, ctx: Context) -> int:
    """Works, fails for good, works at its second attempt, or waits."""
    if payload == "bad":
        raise PermanentError("no")
    if payload == "flaky" and ctx.attempt == 1:
        raise ConnectionError("not yet")
    if payload == "held":
        await until_there(FOLDER / "go")
    await asyncio.sleep(0.02)
    return ctx.seq * ctx.seq
