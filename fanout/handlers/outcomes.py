"""What a handler's end means: the one place that tells permanent from transient, and counts attempts.

The class of the exception that a handler raises decides, never its cause, its context, its message or the members of an
exception group: `raise RuntimeError() from PermanentError()` is transient.
"""

import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, assert_never

from temporalio.common import RetryPolicy

from fanout.errors import DatabaseAway, PermanentError, RetryLater
from fanout.handlers.definition import Handler
from fanout.store.rows import ClaimedItem, Completion, Verdict

WITNESSED = ("poison", "lost_too_often", "cancelled")
"""Codes that say what Fanout saw itself: no handler can give them."""
TEXT_LIMIT = 8_000
SUSPECT_DEATHS = 2
"""After so many lost executions an item runs in a child process, whose next death a living worker sees."""
LOST_LIMIT = 10
THROTTLE_LIMIT = 100
LONGEST_WAIT_SECONDS = 100 * 366 * 86_400.0
"""Beyond this, PostgreSQL could not hold the time at which the item is due."""
LONGEST_HEADER_SECONDS = 366 * 86_400.0
"""What a server's Retry-After may ask for; a handler of one's own may ask for more."""
JITTER = 0.1
"""Back-off is shortened by up to this share, so that items that failed together do not return together."""

RETRYABLE_HTTP = frozenset({408, 425, 429})


class Ending(Enum):
    """The class of a handler's end."""

    COMPLETED = "completed"
    PERMANENT = "permanent"
    TRANSIENT = "transient"
    THROTTLED = "throttled"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    SETTLED = "settled"


@dataclass(slots=True)
class Outcome:
    """How one attempt at one item ended; plain values only, so that it crosses from a child process.

    `witnessed`: this very worker saw the child process die that ran this item and no other. `trips`: the handler's
    breaker counts this error.
    """

    ending: Ending
    result: str | None = None
    error: dict[str, Any] = field(default_factory=dict)
    after_seconds: float = 0.0
    witnessed: bool = False
    trips: bool = False


def describe(error: BaseException, code: str, attempt: int) -> dict[str, Any]:
    """The stored form of an error: every text is at most 8,000 characters and holds nothing that PostgreSQL refuses."""
    try:
        message = str(error)
    except BaseException:
        message = "(the exception's own text could not be made)"
    try:
        trace = _clean("".join(_traceback_lines(error)))
    except BaseException:
        trace = "(the exception's traceback could not be made)"
    return {
        "code": _clean(code),
        "type": _type_name(error),
        "message": _clean(message[:TEXT_LIMIT]),
        "traceback": trace[-TEXT_LIMIT:] or None,
        "attempt": attempt,
        "at": datetime.now(UTC).isoformat(),
        "truncated": len(message) > TEXT_LIMIT,
        "length": len(message),
    }


def _type_name(error: BaseException) -> str:
    try:
        name = str(type(error).__name__)
    except BaseException:
        return "Exception"
    return "".join(filter(str.isprintable, _clean(name)))[:200] or "Exception"


def _clean(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _traceback_lines(error: BaseException, chain: int = 5, frames: int = 20) -> Iterator[str]:
    """The newest frames of the error and of its nearest causes: bounded whatever a handler raises."""
    found: BaseException | None = error
    for _ in range(chain):
        if found is None:
            return
        yield from traceback.format_tb(found.__traceback__, limit=-frames)
        yield f"{_type_name(found)}\n"
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def classify(error: BaseException, handler: Handler, attempt: int) -> Outcome:
    """The outcome of an attempt that raised `error`."""
    try:
        outcome = _classify(error, handler, attempt)
    except BaseException as odd:
        # Whatever an exception does when it is looked at, it is an exception.
        return Outcome(Ending.TRANSIENT, error=describe(odd, "transient", attempt))
    outcome.trips = outcome.ending is not Ending.THROTTLED and handler.breaks_on(error)
    return outcome


def _classify(error: BaseException, handler: Handler, attempt: int) -> Outcome:
    if isinstance(error, DatabaseAway):
        # Bounded as any wait is: a handler that ends its own session each time would else come back for ever.
        return Outcome(Ending.THROTTLED, error=describe(error, "throttled", attempt))
    if isinstance(error, MemoryError) and handler.memory_limit is not None:
        return Outcome(Ending.LOST, error=describe(error, "lost", attempt))
    if isinstance(error, RetryLater) and isinstance(getattr(error, "after", None), timedelta | datetime):
        return Outcome(Ending.THROTTLED, error=describe(error, "throttled", attempt), after_seconds=_after(error.after))
    if isinstance(error, handler.transient):
        return Outcome(Ending.TRANSIENT, error=describe(error, "transient", attempt))
    if isinstance(error, handler.permanent):
        return Outcome(Ending.PERMANENT, error=describe(error, "permanent", attempt))
    if isinstance(error, PermanentError):
        # A subclass may have an __init__ of its own that does not call ours.
        code = "".join(filter(str.isprintable, str(getattr(error, "code", ""))))[:60]
        known = code if code not in ("", *WITNESSED) else "permanent"
        return Outcome(Ending.PERMANENT, error=describe(error, known, attempt))
    return _classify_http(error, attempt) or Outcome(Ending.TRANSIENT, error=describe(error, "transient", attempt))


def _after(after: Any) -> float:
    wait = after - datetime.now(UTC) if isinstance(after, datetime) else after
    return max(0.0, float(wait.total_seconds()))


def _classify_http(error: BaseException, attempt: int) -> Outcome | None:
    if not isinstance(error, Exception):
        # The code of a SystemExit is no HTTP status.
        return None
    response = _attribute(error, "response")
    status = _http_status(response) or _http_status(error)
    if status is None:
        return None
    wait = _retry_after(_attribute(response, "headers") or _attribute(error, "headers"))
    if status in (429, 503) and wait is not None:
        return Outcome(Ending.THROTTLED, error=describe(error, "throttled", attempt), after_seconds=wait)
    if status >= 500 or status in RETRYABLE_HTTP:
        return Outcome(Ending.TRANSIENT, error=describe(error, "transient", attempt))
    return Outcome(Ending.PERMANENT, error=describe(error, "permanent", attempt))


def _attribute(source: object, name: str) -> Any:
    """An attribute of a foreign object, whose properties may raise anything."""
    try:
        return getattr(source, name, None)
    except Exception:
        return None


def _http_status(source: object) -> int | None:
    for name in ("status_code", "status", "code"):
        value = _attribute(source, name)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return int(value)
    return None


def _retry_after(headers: Any) -> float | None:
    """The seconds of a Retry-After header, given as seconds or as an HTTP date."""
    try:
        value = headers.get("retry-after") or headers.get("Retry-After")
        if value is None:
            return None
        if value.strip().isascii() and value.strip().isdigit():
            return min(float(value), LONGEST_HEADER_SECONDS)
        wait = parsedate_to_datetime(value) - datetime.now(UTC)
        return min(max(0.0, wait.total_seconds()), LONGEST_HEADER_SECONDS)
    except (AttributeError, TypeError, ValueError):
        return None


def backoff_seconds(policy: RetryPolicy, attempt: int) -> float:
    """How long to wait after the `attempt`th charged attempt, before jitter: never above the policy's cap."""
    initial = policy.initial_interval.total_seconds()
    cap = initial if policy.maximum_interval is None else policy.maximum_interval.total_seconds()
    try:
        return min(cap, initial * policy.backoff_coefficient ** (attempt - 1))
    except OverflowError:
        return cap


Judgement = tuple[Completion | Verdict, bool]


def judge(handler: Handler, item: ClaimedItem, outcome: Outcome) -> Judgement:
    """What to write for `outcome`, and whether that settles the row."""
    match outcome.ending:
        case Ending.COMPLETED:
            assert outcome.result is not None
            return Completion(item.seq, item.claim_id, outcome.result), True
        case Ending.PERMANENT:
            return Verdict(item.seq, item.claim_id, outcome.error, attempts=1), True
        case Ending.SETTLED:
            # Its transaction wrote the row; nothing reads this text again.
            return Completion(item.seq, item.claim_id, "null"), True
        case Ending.INTERRUPTED:
            return Verdict(item.seq, item.claim_id), False
        case Ending.TRANSIENT:
            return _judge_transient(handler, item, outcome)
        case Ending.THROTTLED:
            return _judge_throttled(handler, item, outcome)
        case Ending.LOST:
            return _judge_lost(item, outcome)
        case _:
            assert_never(outcome.ending)


def _judge_transient(handler: Handler, item: ClaimedItem, outcome: Outcome) -> Judgement:
    attempt = item.attempts + 1
    if attempt >= handler.retry_policy.maximum_attempts:
        code = "timeout" if outcome.error["code"] == "timeout" else "retries_exhausted"
        return Verdict(item.seq, item.claim_id, outcome.error | {"code": code}, attempts=1), True
    delay = min(backoff_seconds(handler.retry_policy, attempt), LONGEST_WAIT_SECONDS) * (1 - JITTER * random.random())
    return Verdict(item.seq, item.claim_id, outcome.error, attempts=1, delay=delay, kind="retrying"), False


def _judge_throttled(handler: Handler, item: ClaimedItem, outcome: Outcome) -> Judgement:
    if item.throttles >= THROTTLE_LIMIT:
        return Verdict(item.seq, item.claim_id, outcome.error | {"code": "throttled_too_long"}), True
    # A time that has passed, as of a server whose clock is behind, asks for no wait: then the policy's pauses, growing.
    asked = outcome.after_seconds or backoff_seconds(handler.retry_policy, item.throttles + 1)
    # Never sooner than was asked for, and not all at once.
    delay = min(asked * (1 + JITTER * random.random()), LONGEST_WAIT_SECONDS)
    return Verdict(item.seq, item.claim_id, outcome.error, throttles=1, delay=delay, kind="throttled"), False


def _judge_lost(item: ClaimedItem, outcome: Outcome) -> Judgement:
    if outcome.witnessed and item.crashes >= SUSPECT_DEATHS:
        return Verdict(item.seq, item.claim_id, outcome.error | {"code": "poison"}, crashes=1), True
    if item.crashes + 1 >= LOST_LIMIT:
        return lost_too_often(item, crashes=1), True
    return Verdict(item.seq, item.claim_id, outcome.error, crashes=1, kind="lost"), False


def lost_too_often(item: ClaimedItem, crashes: int = 0) -> Verdict:
    """Fails an item whose executions died too often, each time with its worker or child process."""
    error = describe(LostTooOften(item.crashes + crashes), "lost_too_often", item.attempts + 1)
    return Verdict(item.seq, item.claim_id, error, crashes=crashes)


class LostTooOften(Exception):
    """The stored error of an item whose executions all died."""

    def __init__(self, times: int) -> None:
        super().__init__(f"the process that ran this item died {times} times")


class ProcessDied(Exception):
    """The stored error of one lost execution: the child process died under its worker."""
