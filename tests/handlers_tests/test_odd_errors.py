"""Errors that raise when they are looked at, that ask for the past, or that name odd codes: judged like any other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout import PermanentError, RetryLater
from fanout.errors import DatabaseAway
from tests.handlers_tests.making import claimed, verdict_on


class Unlookable(Exception):
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(name)


def no_class(self: BaseException) -> Any:
    raise RuntimeError("no class")


Liar = type("Liar", (Exception,), {"__class__": property(no_class)})


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("no name")


class Unnamed(Exception, metaclass=Nameless):
    """Has a class without a name."""


@pytest.mark.parametrize("number", range(3))
def test_an_exception_that_raises_when_it_is_looked_at_is_transient(number: int) -> None:
    verdict, settles = verdict_on((Unlookable, Liar, Unnamed)[number]())
    assert (settles, verdict.attempts) == (False, 1)
    assert verdict.error is not None
    assert verdict.error["type"]


@pytest.mark.parametrize("past", [timedelta(seconds=-5), timedelta(0), datetime(2015, 10, 21, tzinfo=UTC)])
def test_a_time_that_has_passed_asks_for_the_policy_s_pauses(past: timedelta | datetime) -> None:
    """A server whose clock is behind must not be asked a hundred times in a second."""
    delays = [verdict_on(RetryLater(after=past), item=claimed(throttles=n))[0].delay or 0 for n in (0, 1, 2, 10)]
    for delay, least in zip(delays, (1, 2, 4, 60), strict=True):
        assert least <= delay <= least * 1.1


def test_a_database_that_went_away_charges_nothing_and_is_bounded() -> None:
    verdict, settles = verdict_on(DatabaseAway("test"))
    assert (settles, verdict.attempts, verdict.throttles, verdict.kind) == (False, 0, 1, "throttled")
    verdict, settles = verdict_on(DatabaseAway("test"), item=claimed(throttles=100))
    assert settles
    assert verdict.error is not None
    assert verdict.error["code"] == "throttled_too_long"


@pytest.mark.parametrize(
    ("code", "stored"), [(404, "404"), (None, "permanent"), ("odd", "odd"), ("poison", "permanent")]
)
def test_the_code_of_a_permanent_error_may_be_anything(code: Any, stored: str) -> None:
    verdict, settles = verdict_on(PermanentError("x", code=code))
    assert settles
    assert verdict.error is not None
    assert verdict.error["code"] == stored
