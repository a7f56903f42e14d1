"""A handler whose end depends on the worker that runs it."""

import asyncio
import os
from typing import Any

from fanout import PermanentError, handler

ENDING = os.environ["FANOUT_TEST_ENDING"]


@handler("test.frozen")
async def frozen(payload: Any) -> str:
    """Takes two seconds, then ends as this worker's environment says."""
    if ENDING == "B":
        return "B"
    await asyncio.sleep(120 if ENDING == "slow" else 2)
    if ENDING == "permanent":
        raise PermanentError("too late")
    if ENDING == "transient":
        raise ConnectionError("too late")
    return "A"
