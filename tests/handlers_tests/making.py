"""What the tests of this package make: handlers, contexts and claimed rows."""

import functools
import inspect
from collections.abc import Callable
from typing import Any
from uuid import UUID

from fanout import Context, handler
from fanout.handlers import Handler, Outcome, judge
from fanout.handlers.definition import MARK
from fanout.handlers.outcomes import classify
from fanout.store import ClaimedItem, Completion, Verdict

BATCH = UUID(int=7)


def make_handler(function: Callable[..., Any] | None = None, name: str = "test.it", **options: Any) -> Handler:
    async def nothing(payload: Any) -> None: ...

    found: Handler = getattr(handler(name, **options)(_plain(function or nothing)), MARK)
    return found


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that can be marked, for a method that cannot."""
    if not inspect.ismethod(function):
        return function

    async def awaiting(*arguments: Any) -> Any:
        return await function(*arguments)

    def calling(*arguments: Any) -> Any:
        return function(*arguments)

    return functools.wraps(function)(awaiting if inspect.iscoroutinefunction(function) else calling)


def make_context(seq: int = 0, attempt: int = 1, name: str = "test.it") -> Context:
    return Context(BATCH, name, "key", f"item {seq}", seq, attempt, 1)


def claimed(attempts: int = 0, crashes: int = 0, throttles: int = 0) -> ClaimedItem:
    return ClaimedItem(3, "three", "null", UUID(int=1), attempts, crashes, throttles)


def verdict_on(
    error: BaseException, handler: Handler | None = None, item: ClaimedItem | None = None
) -> tuple[Verdict, bool]:
    """What is written for an attempt at `item` that raised `error`, and whether that settles it."""
    handler, item = handler or make_handler(), item or claimed()
    return written(classify(error, handler, item.attempts + 1), handler, item)


def written(outcome: Outcome, handler: Handler | None = None, item: ClaimedItem | None = None) -> tuple[Verdict, bool]:
    row, settles = judge(handler or make_handler(), item or claimed(), outcome)
    assert not isinstance(row, Completion)
    return row, settles
