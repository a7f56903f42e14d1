"""A handler whose end depends on the worker that runs it."""

import asyncio
import os
from pathlib import Path
from typing import Any

from fanout import PermanentError, handler
from tests.handlers.gate import until_there

ENDING = os.environ["FANOUT_TEST_ENDING"]
FOLDER = Path(os.environ["FANOUT_TEST_LEDGER"])


@handler("test.frozen")
async def frozen(payload: Any) -> str:
    """Waits for a file `go` that the test makes, then ends as this worker's environment says."""
    if ENDING == "B":
        return "B"
    if ENDING == "slow":
        await asyncio.sleep(120)
    await until_there(FOLDER / "go")
    if ENDING == "permanent":
        raise PermanentError("too late")
    if ENDING == "transient":
        raise ConnectionError("too late")
    return "A"
