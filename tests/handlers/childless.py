"""A module that a worker can import and its child processes cannot."""

import multiprocessing
from typing import Any

from fanout import handler

if multiprocessing.parent_process() is not None:
    raise ImportError("not in a child")


@handler("child.never", run_in="process")
def never(payload: Any) -> None:
    """Would run in a child."""
