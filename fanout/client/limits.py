"""When a batch gives up before its end: how many of its items may fail, and by when it must be closed."""

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from fanout.errors import InvalidRequest, shorten

LONGEST_DEADLINE = timedelta(days=3650)
LEAST_SETTLED = 20
"""A percentage of failures counts once so many items are settled, or all are."""
MOST_FAILURES = 2**31 - 1
ON_BUDGET = ("pause", "fail")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a submit allows its batch; checked when it is made.

    `max_failures` is a number of items, or a percentage of the total as text ("5%"); `on_budget` is what happens beyond
    it. `deadline` counts from the submit.
    """

    max_failures: int | str | None = None
    on_budget: str | None = None
    deadline: timedelta | None = None

    def __post_init__(self) -> None:
        if self.max_failures is not None:
            _check_failures(self.max_failures)
        if self.on_budget is not None:
            self._check_on_budget(self.on_budget)
        if self.deadline is not None:
            _check_deadline(self.deadline)

    def _check_on_budget(self, given: object) -> None:
        if given not in ON_BUDGET:
            raise InvalidRequest(f"on_budget is {_shown(given)}; it is one of {' and '.join(ON_BUDGET)}")
        if self.max_failures is None:
            raise InvalidRequest(f"on_budget is {_shown(given)}, but max_failures, which it is about, is not given")

    def stored(self, total: int) -> dict[str, Any]:
        """What the row of a batch of `total` items keeps of its budget: what was given, and the facts to count by."""
        given = self.max_failures
        if given is None:
            return {}
        facts: dict[str, Any] = {"max_failures": given, "on_budget": self.on_budget or "pause"}
        if isinstance(given, int):
            return {**facts, "failure_limit": given}
        limit = int(total * Decimal(given.removesuffix("%")) / 100)
        return {**facts, "failure_limit": limit, "failure_least": min(LEAST_SETTLED, total)}


def _check_failures(given: object) -> None:
    if type(given) is int:
        if not 0 <= given <= MOST_FAILURES:
            raise InvalidRequest(f"max_failures is {given}; a number of items is between 0 and {MOST_FAILURES:,}")
        return
    percent = _PERCENT.fullmatch(given) if isinstance(given, str) else None
    if percent is None or not 0 < Decimal(percent[1]) <= 100:
        raise InvalidRequest(
            f"max_failures is {_shown(given)}; it is a number of items from 0 on, "
            f"or a percentage above 0% and up to 100% of them such as 2.5%"
        )


def _check_deadline(given: object) -> None:
    if not isinstance(given, timedelta):
        raise InvalidRequest(f"deadline is {_shown(given)}; it is a time span from the submit on")
    if not timedelta(0) < given <= LONGEST_DEADLINE:
        raise InvalidRequest(f"deadline is {given}; it is above 0 and at most {LONGEST_DEADLINE.days} days")


def _shown(given: object) -> str:
    return shorten(repr(given))


def failures_in(text: str | None) -> int | str | None:
    """A number of items, or whatever else was given, for the client to judge."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,12}", text) else text
