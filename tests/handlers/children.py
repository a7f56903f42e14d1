"""Handlers that run in child processes and end in every way that a process can."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from fanout import Context, PermanentError, handler

WEIRD: dict[str, Any] = {"nan": float("nan"), "objects": {object()}, "nul": "a\0b", "surrogate": "\ud800"}


def wait_until(check: Callable[[], bool]) -> None:
    """Polls."""
    while not check():
        time.sleep(0.01)


def die_once(payload: dict[str, Any], ctx: Context) -> None:
    """Dies the first time that any process works on the item."""
    if len(list(Path(payload["folder"]).glob(f"{ctx.seq}-*"))) == 1:
        os._exit(137)


def fail(payload: dict[str, Any], ctx: Context) -> None:
    """Raises the error that is named."""
    raise ERRORS[payload["error"]]("child")


ERRORS = {error.__name__: error for error in (SystemExit, KeyboardInterrupt, GeneratorExit, PermanentError)}
ACTS: dict[str, Callable[[dict[str, Any], Context], Any]] = {
    "exit": lambda payload, ctx: os._exit(payload["code"]),
    "segfault": lambda payload, ctx: ctypes.string_at(0),
    "die once": die_once,
    "wait": lambda payload, ctx: wait_until(lambda: ctx.cancelled),
    "hold": lambda payload, ctx: wait_until(Path(payload["folder"], "go").exists),
    "raise": fail,
    "weird": lambda payload, ctx: WEIRD[payload["value"]],
    "pid": lambda payload, ctx: os.getpid(),
}


@handler("child.act", run_in="process", max_attempts=3)
def act(payload: dict[str, Any], ctx: Context) -> Any:
    """Notes its process in `folder`, then does what the payload says."""
    Path(payload["folder"], f"{ctx.seq}-{ctx.attempt}-{time.monotonic_ns()}").write_text(str(os.getpid()))
    return ACTS[payload["do"]](payload, ctx)


@handler("child.hang", run_in="process", timeout=timedelta(seconds=1))
def hang(payload: dict[str, Any], ctx: Context) -> None:
    """Never ends by itself and does not listen."""
    Path(payload["folder"], "hangs").write_text(str(os.getpid()))
    time.sleep(600)


@handler("child.modules", run_in="process")
def modules(payload: Any) -> int:
    """How many modules the child has loaded of this file."""
    return sum(module.endswith("tests.handlers.children") for module in sys.modules)
