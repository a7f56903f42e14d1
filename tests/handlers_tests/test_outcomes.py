"""What a handler's end means: the table of docs, row by row, and how errors are stored."""

import asyncio
import json
import time
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from temporalio.common import RetryPolicy

from fanout import PermanentError, RetryLater
from fanout.encoding import check_text
from fanout.handlers import Ending, Outcome, backoff_seconds, judge
from fanout.handlers.outcomes import LOST_LIMIT, TEXT_LIMIT, THROTTLE_LIMIT, classify, describe
from fanout.store import Completion
from tests.handlers_tests.making import claimed, make_handler, verdict_on, written

NAMESAKE = type("PermanentError", (Exception,), {})


class CardDeclined(PermanentError):
    pass


class Forgetful(PermanentError):
    """An __init__ of its own that does not call the base's."""

    def __init__(self, card: str) -> None:
        self.card = card


class Answered(Exception):
    """Looks like the error of an HTTP library."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.response = SimpleNamespace(status_code=status, headers=headers or {})


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (CardDeclined("no"), True),
        (Forgetful("4111"), True),
        (caused(RuntimeError("x"), PermanentError("y")), False),
        (caused(ConnectionError("x"), PermanentError("y")), False),
        (ExceptionGroup("g", [PermanentError("y")]), False),
        (NAMESAKE("x"), False),
        (TimeoutError(), False),
        (asyncio.CancelledError("mine"), False),
        (SystemExit(404), False),
        (KeyboardInterrupt(), False),
        (GeneratorExit(), False),
    ],
)
def test_the_class_that_is_raised_decides_and_nothing_inside_it(error: BaseException, permanent: bool) -> None:
    """Neither cause nor context, message, group member or a mere name counts."""
    handler = make_handler(max_attempts=3)
    ends = [verdict_on(error, handler, claimed(attempts)) for attempts in range(3)]
    assert [settles for _, settles in ends] == ([True] * 3 if permanent else [False, False, True])
    assert [row.attempts for row, _ in ends] == [1, 1, 1]
    last = ends[-1][0].error
    assert last is not None
    assert last["code"] == ("permanent" if permanent else "retries_exhausted")
    assert last["type"] == type(error).__name__


def test_a_permanent_error_brings_its_own_code() -> None:
    row, settles = verdict_on(PermanentError("no", code="encrypted"))
    assert settles
    assert row.error is not None
    assert (row.error["code"], row.error["message"], row.error["attempt"]) == ("encrypted", "no", 1)


def test_codes_and_types_that_are_no_strings_are_stored_as_strings() -> None:
    class Numbered(type):
        @property
        def __name__(cls) -> Any:  # type: ignore[override]
            return 504

    class Odd(PermanentError, metaclass=Numbered):
        code: Any = 17

        def __init__(self) -> None:
            pass

    error = verdict_on(Odd())[0].error
    assert error is not None
    assert (error["code"], error["type"]) == ("17", "504")
    long = verdict_on(PermanentError("x", code="c" * 500 + "\0"))[0].error
    assert long is not None
    assert long["code"] == "c" * 60


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (7, 60), (64, 60), (1024, 60), (100_000, 60)])
def test_back_off_reaches_its_cap_and_stays_there(attempt: int, seconds: float) -> None:
    """Jitter only shortens."""
    handler = make_handler(max_attempts=1_000_000)
    assert backoff_seconds(handler.retry_policy, attempt) == seconds
    delays = [verdict_on(OSError(), handler, claimed(attempt - 1))[0].delay or 0.0 for _ in range(200)]
    assert max(delays) <= seconds
    assert min(delays) >= 0.9 * seconds
    assert len(set(delays)) > 100


def test_back_off_of_odd_policies_stays_within_what_postgresql_can_add_to_a_time() -> None:
    whole = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_attempts=9)
    whole.maximum_interval = timedelta(seconds=60)
    assert backoff_seconds(whole, 100_000) == 60
    longest = RetryPolicy(initial_interval=timedelta.max, maximum_interval=timedelta.max, maximum_attempts=9)
    row, _ = verdict_on(OSError(), make_handler(retry_policy=longest))
    assert 0 < (row.delay or 0) <= 100 * 366 * 86_400
    row, _ = verdict_on(RetryLater(after=timedelta.max))
    assert 0 < (row.delay or 0) <= 1.2 * 100 * 366 * 86_400


def test_a_return_completes_the_row() -> None:
    row, settles = judge(make_handler(), claimed(), Outcome(Ending.COMPLETED, result="[1]"))
    assert settles
    assert row == Completion(3, claimed().claim_id, "[1]")


@pytest.mark.parametrize("after", [timedelta(seconds=90), timedelta(milliseconds=1)])
def test_retry_later_waits_at_least_as_long_as_asked_and_charges_nothing(after: timedelta) -> None:
    asked = after.total_seconds()
    for _ in range(50):
        row, settles = verdict_on(RetryLater("busy", after=after), item=claimed(attempts=4))
        assert (settles, row.attempts, row.throttles, row.kind) == (False, 0, 1, "throttled")
        assert asked <= (row.delay or 0) <= asked * 1.1 + 0.1


def test_retry_later_takes_a_time_with_a_zone_and_no_other() -> None:
    later = datetime.now(UTC) + timedelta(seconds=50)
    row, _ = verdict_on(RetryLater(after=later))
    assert 49 <= (row.delay or 0) <= 56
    with pytest.raises(ValueError, match="zone"):
        RetryLater(after=datetime(2026, 1, 1))


def test_a_retry_later_that_was_made_wrong_is_an_error_like_any_other() -> None:
    class Lost(RetryLater):
        def __init__(self) -> None:
            pass

    row, settles = verdict_on(Lost())
    assert (settles, row.attempts) == (False, 1)


def test_an_item_that_was_throttled_too_often_fails() -> None:
    error = RetryLater(after=timedelta(seconds=1))
    assert not verdict_on(error, item=claimed(throttles=THROTTLE_LIMIT - 1))[1]
    row, settles = verdict_on(error, item=claimed(throttles=THROTTLE_LIMIT))
    assert settles
    assert row.error is not None
    assert (row.error["code"], row.attempts) == ("throttled_too_long", 0)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        *((status, Ending.PERMANENT) for status in (400, 401, 403, 404, 409, 410, 418, 422, 451, 499)),
        *((status, Ending.TRANSIENT) for status in (408, 425, 429, 500, 502, 503, 504, 599)),
        *((status, Ending.TRANSIENT) for status in (200, 301, 399, 600, -404)),
    ],
)
def test_http_statuses_are_told_apart_wherever_they_stand(status: int, ending: Ending) -> None:
    handler = make_handler()
    errors: list[Exception] = [Answered(status)]
    for name in ("status_code", "status", "code"):
        bare = Exception("answer")
        setattr(bare, name, status)
        errors.append(bare)
    if status >= 400:
        request = httpx.Request("GET", "http://x")
        errors.append(httpx.HTTPStatusError("no", request=request, response=httpx.Response(status)))
        errors.append(urllib.error.HTTPError("http://x", status, "no", Message(), None))
    assert [classify(error, handler, 1).ending for error in errors] == [ending] * len(errors)
    for error in errors:
        if isinstance(error, urllib.error.HTTPError):
            error.close()


@pytest.mark.parametrize("value", ["404", True, None, 404.0])
def test_an_attribute_that_is_no_integer_is_no_http_status(value: object) -> None:
    error = Exception("x")
    error.code = value  # type: ignore[attr-defined]
    assert classify(error, make_handler(), 1).ending is Ending.TRANSIENT


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_header_is_obeyed(status: int) -> None:
    handler = make_handler()
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    for header, low, high in (("30", 30, 30), ("0", 0, 0), (date, 98, 100), ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0)):
        for name in ("Retry-After", "retry-after"):
            outcome = classify(Answered(status, {name: header}), handler, 1)
            assert outcome.ending is Ending.THROTTLED, (name, header)
            assert low <= outcome.after_seconds <= high


@pytest.mark.parametrize("header", ["soon", "", "-5", "1.5", "²", "Wed, 21 Oct 2015 07:28:00 -0000", "9" * 400])
def test_a_retry_after_header_that_says_nothing_is_no_reason_to_crash(header: str) -> None:
    outcome = classify(Answered(429, {"Retry-After": header}), make_handler(), 1)
    assert outcome.ending in (Ending.TRANSIENT, Ending.THROTTLED)
    assert outcome.after_seconds <= 366 * 86_400


def test_retry_after_counts_only_beside_429_and_503() -> None:
    for status, ending in ((500, Ending.TRANSIENT), (404, Ending.PERMANENT)):
        assert classify(Answered(status, {"Retry-After": "30"}), make_handler(), 1).ending is ending


def test_foreign_errors_whose_properties_raise_are_judged_all_the_same() -> None:
    class Touchy(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("the request was not sent")

    row, settles = verdict_on(Touchy("x"))
    assert not settles
    assert row.error is not None
    assert row.error["type"] == "Touchy"


def test_a_handler_s_own_lists_win_over_every_rule() -> None:
    patient = make_handler(transient=(PermanentError, Answered))
    strict = make_handler(permanent=(OSError, Answered))
    both = make_handler(permanent=(OSError,), transient=(ConnectionError,))
    assert classify(CardDeclined("x"), patient, 1).ending is Ending.TRANSIENT
    assert classify(Answered(404), patient, 1).ending is Ending.TRANSIENT
    assert classify(ConnectionError(), strict, 1).ending is Ending.PERMANENT
    assert classify(Answered(503, {"Retry-After": "1"}), strict, 1).ending is Ending.PERMANENT
    assert classify(ConnectionError(), both, 1).ending is Ending.TRANSIENT
    assert classify(PermissionError(), both, 1).ending is Ending.PERMANENT


def test_a_lost_execution_charges_a_crash_and_ten_of_them_fail_the_item() -> None:
    lost = Outcome(Ending.LOST, error=describe(RuntimeError("died"), "lost", 1))
    row, settles = written(lost, item=claimed(crashes=LOST_LIMIT - 2))
    assert (settles, row.crashes, row.attempts, row.kind) == (False, 1, 0, "lost")
    row, settles = written(lost, item=claimed(crashes=LOST_LIMIT - 1))
    assert row.error is not None
    assert (settles, row.crashes, row.attempts, row.error["code"]) == (True, 1, 0, "lost_too_often")


def test_an_interruption_charges_nothing() -> None:
    row, settles = written(Outcome(Ending.INTERRUPTED), item=claimed(attempts=4))
    assert (settles, row.attempts, row.crashes, row.throttles, row.delay, row.kind) == (False, 0, 0, 0, None, None)


def test_a_last_attempt_that_ran_out_of_time_says_so() -> None:
    late = Outcome(Ending.TRANSIENT, error=describe(TimeoutError("slow"), "timeout", 1))
    row, settles = written(late, make_handler(max_attempts=1))
    assert settles
    assert row.error is not None
    assert row.error["code"] == "timeout"


class Raising(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class Verbose(Exception):
    def __str__(self) -> str:
        return "v" * 5_000_000


def chain(depth: int) -> BaseException:
    error: BaseException = ValueError("root")
    for number in range(depth):
        error = caused(RuntimeError(f"level {number}"), error)
    return error


def cycle() -> BaseException:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def monsters() -> Iterator[tuple[str, BaseException]]:
    yield "huge", ValueError("e" * 5_000_000)
    yield "huge emoji", ValueError("🙂" * 5_000_000)
    yield "chain", chain(2_000)
    yield "cycle", cycle()
    yield "nul", ValueError("a\0b\ud800c")
    yield "raising", Raising()
    yield "verbose", Verbose()
    yield "group", ExceptionGroup("g", [ValueError("m" * 1_000) for _ in range(10_000)])
    yield "class name", type("N" * 5_000, (Exception,), {})("x")
    yield "permanent", PermanentError("\0", code="\0\ud800")


@pytest.mark.parametrize("name", [name for name, _ in monsters()])
def test_any_error_is_described_quickly_and_can_be_stored(name: str) -> None:
    """Bounded, and nothing that JSON or PostgreSQL refuses."""
    error = dict(monsters())[name]
    began = time.thread_time()
    try:
        raise error
    except BaseException as caught:
        found = classify(caught, make_handler(), 1).error
    assert time.thread_time() - began < 1
    text = json.dumps(found)
    check_text(text)
    assert "\\ud800" not in text
    json.dumps(found, ensure_ascii=False).encode()
    assert isinstance(found["type"], str)
    assert len(found["type"]) <= 200
    assert len(found["message"]) <= TEXT_LIMIT
    assert len(found["traceback"] or "") <= TEXT_LIMIT
    assert found["truncated"] == (found["length"] > TEXT_LIMIT)


def test_a_shortened_message_tells_its_length() -> None:
    found = describe(ValueError("e" * 5_000_000), "transient", 2)
    assert (found["type"], found["truncated"], found["length"]) == ("ValueError", True, 5_000_000)
    assert (found["message"], found["attempt"]) == ("e" * TEXT_LIMIT, 2)
    whole = describe(ValueError("e" * TEXT_LIMIT), "transient", 1)
    assert (whole["truncated"], whole["length"]) == (False, TEXT_LIMIT)


def test_a_traceback_shows_where_but_not_what_was_said() -> None:
    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        raise ValueError("the secret")

    try:
        deep(300)
    except ValueError as error:
        trace = describe(error, "transient", 1)["traceback"]
    assert "in deep" in trace
    assert "secret" not in trace.replace('raise ValueError("the secret")', "")
