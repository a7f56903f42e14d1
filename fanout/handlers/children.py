"""Child processes for `run_in="process"`: a handler there can be killed, and its death is seen by a living worker."""

import asyncio
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

try:
    import pebble
except ImportError:
    pebble = None  # type: ignore[assignment]

from fanout.errors import MissingExtra
from fanout.handlers.builtin import builtin_handlers
from fanout.handlers.calls import call_blocking, encode_result
from fanout.handlers.context import Cancellation, Context
from fanout.handlers.outcomes import Ending, Outcome, describe
from fanout.handlers.registry import BrokenModule, Handlers, load_handlers
from fanout.handlers.transactions import Settlement
from fanout.logs import LogSetup
from fanout.settings import Settings
from fanout.store import Effects
from fanout.tracing import tracing_of_process

_PR_SET_PDEATHSIG = 1
TERM_SECONDS = 0.1
OUT_OF_MEMORY = 137
_broken: list[BrokenModule] = []
_made: list["_Child"] = []
"""What this child process is, set once by its initializer: the only way in that a spawned process has."""


class Children:
    """A pool of child processes, started at first use and ended with its worker.

    `database_url` is for the transactions of handlers that run here.
    """

    def __init__(self, modules: Sequence[str], size: int, database_url: str | None = None) -> None:
        self._modules = tuple(modules)
        self._size = size
        self._database_url = database_url
        self._pool: Any = None

    @property
    def available(self) -> bool:
        """Whether the package that runs them is installed."""
        return pebble is not None

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
                initargs=(self._modules, os.getpid(), _path(), self._database_url, LogSetup.of_this_process()),
            )
        future: Future[Outcome] = self._pool.schedule(_call, args=(name, payload, facts, file, limit))
        return future

    def stop(self) -> None:
        """Kills every child."""
        if self._pool is not None:
            _end(self._pool)


def _path() -> list[str]:
    return [path for path in sys.path if path]


def _end(pool: Any) -> None:
    pool.stop()
    pool.join()


def refuse_without_pebble(handlers: Handlers) -> None:
    """Raises MissingExtra at a worker's start, not at its first item, where handlers need child processes."""
    if pebble is None and any(found.mode == "process" for found in handlers.values()):
        raise MissingExtra('run_in="process"', "process")


def died(error: BaseException) -> bool:
    """Whether a future failed because its child process died, or all of them did."""
    return pebble is not None and isinstance(error, pebble.ProcessExpired | BrokenProcessPool)


def died_alone(error: BaseException) -> bool:
    """Whether it is known that the child died while it ran this very item."""
    return pebble is not None and isinstance(error, pebble.ProcessExpired)


class _Child:
    """What one child process keeps from item to item: handlers, a loop, and connections for transactions."""

    def __init__(self, modules: tuple[str, ...], database_url: str | None) -> None:
        self._handlers = load_handlers(modules).plus(builtin_handlers(Settings.from_environment()))
        # One loop for all items: what a module made for its loop must not meet another one.
        self._loop = asyncio.Runner()
        self._effects = None if database_url is None else Effects(database_url, 1)
        # Spans of a child are its handlers' own: the worker keeps those of attempts, which a death must not take along.
        self._tracing = tracing_of_process()

    def call(self, name: str, payload: str, facts: dict[str, Any], file: Path, limit: int) -> Outcome:
        """Runs the handler `name`; ends this process where its memory limit was too small."""
        handler = self._handlers[name]
        traceparent = facts.pop("traceparent", None)
        context = self._context(facts, file, limit)
        if context.cancelled:
            return Outcome(Ending.INTERRUPTED)
        with self._tracing.continuing(traceparent), _memory_limit(handler.memory_limit):
            outcome = call_blocking(handler, payload, context, limit, self._loop.run)
        if outcome.ending is Ending.LOST:
            os._exit(OUT_OF_MEMORY)
        return outcome

    def _context(self, facts: dict[str, Any], file: Path, limit: int) -> Context:
        claim_id = facts.pop("claim_id")
        settlement = None
        if claim_id is not None and self._effects is not None:
            encode = partial(encode_result, limit=limit)
            settlement = Settlement(self._effects, facts["batch_id"], facts["seq"], claim_id, encode)
        return Context(**facts, cancellation=Cancellation(file), settlement=settlement)


@contextmanager
def _memory_limit(limit: int | None) -> Iterator[None]:
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _initialize(
    modules: tuple[str, ...], parent: int, path: list[str], database_url: str | None, logs: LogSetup | None
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _let_no_death_look_like_an_end()
    sys.path[:] = path
    if logs is not None:
        logs.apply()
    try:
        _made.append(_Child(modules, database_url))
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
    if _broken:
        return Outcome(Ending.TRANSIENT, error=describe(_broken[0], "transient", facts["attempt"]))
    return _made[0].call(name, payload, facts, file, limit)
