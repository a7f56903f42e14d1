"""Named points between a commit and the use of its answer, where tests kill the process, lose the answer or stall.

A testing aid: without `FANOUT_FAULT_POINTS` nothing of it runs. Each process counts its own passings.
"""

import asyncio
import logging
import os
import re
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

log = logging.getLogger("fanout.points")


class FaultPoint(StrEnum):
    """Every gap: something is done, and whoever did it has not heard so yet."""

    ITEM_ENDED = "item.ended"
    CLAIM_COMMITTED = "claim.committed"
    COMPLETE_COMMITTED = "complete.committed"
    FAIL_COMMITTED = "fail.committed"
    RELEASE_COMMITTED = "release.committed"
    TRANSACTION_COMMITTED = "transaction.committed"
    WORKER_REFRESHED = "worker.refreshed"
    WORKER_REMOVED = "worker.removed"
    OPEN_COMMITTED = "open.committed"
    CLOSE_COMMITTED = "close.committed"
    CANCEL_COMMITTED = "cancel.committed"
    PAUSE_COMMITTED = "pause.committed"
    RESUME_COMMITTED = "resume.committed"
    REOPEN_COMMITTED = "reopen.committed"
    SUBMIT_COMMITTED = "submit.committed"
    WORKFLOW_STARTED = "workflow.started"


class Mishap(StrEnum):
    """What happens at an armed point."""

    KILL = "kill"
    LOSE = "lose"
    STALL = "stall"


_FAULT = re.compile(r"([a-z.]+)=(?:(kill|lose)|(stall):(\d+(?:\.\d+)?))(?:@([1-9]\d*)(\+?))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """One armed point: at the `nth` passing, and at every later one if `onward`."""

    point: FaultPoint
    mishap: Mishap
    seconds: float = 0.0
    nth: int = 1
    onward: bool = False

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Reads `POINT=kill|lose|stall:SECONDS`, `@N` and `@N+` behind it; raises ValueError."""
        found = _FAULT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not POINT=kill, POINT=lose or POINT=stall:SECONDS, with @N or @N+ behind it")
        name, sudden, stall, seconds, nth, onward = found.groups()
        if name not in set(FaultPoint):
            raise ValueError(f"{name!r} is no fault point: {', '.join(FaultPoint)}")
        return cls(FaultPoint(name), Mishap(sudden or stall), float(seconds or 0), int(nth or 1), bool(onward))

    def strikes(self, passing: int) -> bool:
        """Whether that passing, counted from 1, is one that it was armed for."""
        return passing == self.nth or (self.onward and passing > self.nth)


Answer = TypeVar("Answer")
Lost = Callable[[], Exception]


def _lost() -> Exception:
    return ConnectionError("the answer was lost at a fault point")


class FaultPoints:
    """The armed points of one process."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._passings: dict[FaultPoint, int] = {}

    @classmethod
    def armed(cls, faults: Sequence[Fault]) -> "FaultPoints | None":
        """None without faults: what has points then costs a test for None."""
        return cls(faults) if faults else None

    async def reach(self, point: FaultPoint, lost: Lost = _lost) -> None:
        """Passes `point`: kills this process, raises what `lost` makes, or stalls, if it is armed for this passing."""
        passing = self._passings[point] = self._passings.get(point, 0) + 1
        for fault in self._faults:
            if fault.point is point and fault.strikes(passing):
                log.warning("fault point %s, passing %d: %s", point, passing, fault.mishap)
                await _strike(fault, lost)


async def _strike(fault: Fault, lost: Lost) -> None:
    if fault.mishap is Mishap.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.mishap is Mishap.LOSE:
        raise lost()
    await asyncio.sleep(fault.seconds)


class _HasPoints(Protocol):
    _points: FaultPoints | None


Owner = TypeVar("Owner", bound=_HasPoints)
Given = ParamSpec("Given")
Method = Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Answer]]


def before(point: FaultPoint) -> Callable[[Method[Owner, Given, Answer]], Method[Owner, Given, Answer]]:
    """The method's owner passes `point` before the method runs."""

    async def passed(points: FaultPoints, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            await points.reach(point)
        except BaseException:
            call.close()
            raise
        return await call

    return _wrapping(passed)


def after(
    point: FaultPoint, lost: Lost = _lost
) -> Callable[[Method[Owner, Given, Answer]], Method[Owner, Given, Answer]]:
    """The method's owner passes `point` once the method has its answer, before the caller has it."""

    async def passed(points: FaultPoints, call: Coroutine[Any, Any, Answer]) -> Answer:
        answer = await call
        await points.reach(point, lost)
        return answer

    return _wrapping(passed)


def _wrapping(
    passed: Callable[[FaultPoints, Coroutine[Any, Any, Answer]], Coroutine[Any, Any, Answer]],
) -> Callable[[Method[Owner, Given, Answer]], Method[Owner, Given, Answer]]:
    def wrap(method: Method[Owner, Given, Answer]) -> Method[Owner, Given, Answer]:
        @wraps(method)
        def wrapped(owner: Owner, /, *args: Given.args, **named: Given.kwargs) -> Coroutine[Any, Any, Answer]:
            call = method(owner, *args, **named)
            return call if owner._points is None else passed(owner._points, call)

        return wrapped

    return wrap
