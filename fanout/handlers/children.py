"""Child processes for `run_in="process"`: a handler there can be killed, and its death is seen by a living worker."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

try:
    import pebble
except ImportError:
    pebble = None  # type: ignore[assignment]

from fanout.errors import MissingExtra
from fanout.handlers.calls import call_blocking
from fanout.handlers.context import Cancellation, Context
from fanout.handlers.outcomes import Ending, Outcome, describe
from fanout.handlers.registry import BrokenModule, Handlers, load_handlers

_PR_SET_PDEATHSIG = 1
TERM_SECONDS = 0.1
_broken: list[BrokenModule] = []
_loaded: dict[str, Handlers] = {}
"""The handlers of this child process, set once by its initializer: the only way in that a spawned process has."""


class Children:
    """A pool of child processes, started at first use and ended with its worker."""

    def __init__(self, modules: Sequence[str], size: int) -> None:
        self._modules = tuple(modules)
        self._size = size
        self._pool: Any = None

    def schedule(self, name: str, payload: str, facts: dict[str, Any], file: Path, limit: int) -> Future[Outcome]:
        """Runs a handler in a child; cancelling the future kills that child. Raises MissingExtra without pebble."""
        if self._pool is not None and not self._pool.active:
            # A child that died between two items breaks pebble's whole pool.
            Thread(target=_end, args=(self._pool,), daemon=True).start()
            self._pool = None
        if self._pool is None:
            if pebble is None:
                raise MissingExtra('run_in="process"', "process")
            # A child that overran its time is not asked twice: pebble would wait 3 s between SIGTERM and SIGKILL.
            pebble.CONSTS.term_timeout = TERM_SECONDS
            self._pool = pebble.ProcessPool(
                max_workers=self._size,
                context=get_context("spawn"),
                initializer=_initialize,
                initargs=(self._modules, os.getpid(), [path for path in sys.path if path]),
            )
        future: Future[Outcome] = self._pool.schedule(_call, args=(name, payload, facts, file, limit))
        return future

    def stop(self) -> None:
        """Kills every child."""
        if self._pool is not None:
            _end(self._pool)


def _end(pool: Any) -> None:
    pool.stop()
    pool.join()


def refuse_without_pebble(handlers: Handlers) -> None:
    """Raises MissingExtra at a worker's start, not at its first item, where handlers need child processes."""
    if pebble is None and any(found.mode == "process" for found in handlers.values()):
        raise MissingExtra('run_in="process"', "process")


def died(error: BaseException) -> bool:
    """Whether a future failed because its child process died."""
    return pebble is not None and isinstance(error, pebble.ProcessExpired | BrokenProcessPool)


def _initialize(modules: tuple[str, ...], parent: int, path: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _let_no_death_look_like_an_end()
    sys.path[:] = path
    try:
        _loaded["handlers"] = load_handlers(modules)
    except BrokenModule as error:
        # Told by each item: a child that ends here would only be started again, for ever.
        _broken.append(error)


def _let_no_death_look_like_an_end() -> None:
    """pebble waits for ever for an item whose child ended with exit code 0."""
    here, end = os.getpid(), os._exit

    def leave(status: int) -> NoReturn:
        end(status or int(os.getpid() == here))

    os._exit = leave


def _call(name: str, payload: str, facts: dict[str, Any], file: Path, limit: int) -> Outcome:
    context = Context(**facts, cancellation=Cancellation(file))
    if context.cancelled:
        return Outcome(Ending.INTERRUPTED)
    if _broken:
        return Outcome(Ending.TRANSIENT, error=describe(_broken[0], "transient", context.attempt))
    return call_blocking(_loaded["handlers"][name], payload, context, limit)
