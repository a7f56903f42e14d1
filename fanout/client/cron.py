"""Cron expressions as Temporal's Schedules read them, in the very form into which its server brings them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from temporalio.api.schedule.v1 import IntervalSpec, Range, StructuredCalendarSpec

from fanout.errors import shorten

WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY = "@every"
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
SUNDAY_AGAIN = 7
_PART = re.compile(
    r"(?P<first>\*|[0-9]{1,4}|[a-z]{3,9})(?:-(?P<last>[0-9]{1,4}|[a-z]{3,9}))?(?:/(?P<step>[0-9]{1,4}))?"
)
_SPAN = re.compile(r"(?:[0-9]{1,6}[dhms])+")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an expression: its name on the server, its limits, and the words that stand for its numbers."""

    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.replace("_", " ")

    def read(self, text: str) -> Iterator[Range]:
        """The ranges that the text names; raises ValueError that says what is wrong with it."""
        for part in text.lower().split(","):
            yield from self._part(part)

    def _part(self, part: str) -> Iterator[Range]:
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"the {self.title} {shorten(part)!r} is no number, range or step")
        first, last, step = found["first"], found["last"], found["step"]
        if step is not None and int(step) == 0:
            raise ValueError(f"the {self.title} {part!r} has the step 0")
        if first == "*":
            if last is not None:
                raise ValueError(f"the {self.title} {part!r} is no number, range or step")
            yield from self._week(self.lowest, self.highest, int(step or 1))
            return
        start = self._value(first)
        end = self._value(last) if last is not None else start if step is None else self.highest
        if end < start:
            raise ValueError(f"the {self.title} {part!r} ends before it starts")
        yield from self._week(start, end, int(step or 1))

    def _week(self, start: int, end: int, step: int) -> Iterator[Range]:
        """Sunday has two numbers, 0 and 7, of which the server keeps the first."""
        if self.words != DAYS or end != SUNDAY_AGAIN:
            yield Range(start=start, end=end, step=step)
            return
        if start > 0 and (SUNDAY_AGAIN - start) % step == 0:
            yield Range(start=0, end=0, step=1)
        if start < SUNDAY_AGAIN:
            yield Range(start=start, end=SUNDAY_AGAIN - 1, step=step)

    def _value(self, text: str) -> int:
        if not text.isdigit():
            for number, word in enumerate(self.words, self.lowest):
                if text in (word, word[:3]):
                    return number
            raise ValueError(f"the {self.title} {text!r} is no number" + (" and no name" if self.words else ""))
        if not self.lowest <= int(text) <= self.highest:
            raise ValueError(f"the {self.title} {text} is not between {self.lowest} and {self.highest}")
        return int(text)


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY_OF_MONTH = Field("day_of_month", 1, 31)
MONTH = Field("month", 1, 12, MONTHS)
DAY_OF_WEEK = Field("day_of_week", 0, SUNDAY_AGAIN, DAYS)
YEAR = Field("year", 2000, 2100)
FIVE = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
BY_COUNT = {5: FIVE, 6: (*FIVE, YEAR), 7: (SECOND, *FIVE, YEAR)}


def fields_of(expression: str) -> dict[str, str]:
    """The texts of the fields that an expression has, by their names; raises ValueError for a number of them unknown.

    Temporal takes a sixth field for the year, where others have seconds in front; with seven, seconds come first.
    """
    texts = WORDS.get(expression, expression).split()
    if expression.startswith("@") and expression not in WORDS:
        raise ValueError(f"there is no {shorten(expression)!r}; there are {', '.join(WORDS)} and {EVERY} 90m")
    if "=" in texts[0] if texts else False:
        raise ValueError(f"{shorten(texts[0])!r} names a time zone, which has a field of its own: time_zone")
    if "#" in expression:
        raise ValueError("Temporal takes what follows a # for a comment; the second Monday is MON with days 8-14")
    if len(texts) not in BY_COUNT:
        raise ValueError(f"it has {len(texts)} fields, not 5: minute, hour, day of month, month, day of week")
    return {field.name: text for field, text in zip(BY_COUNT[len(texts)], texts, strict=True)}


def read_cron(expression: str) -> StructuredCalendarSpec | IntervalSpec:
    """What the expression means to Temporal's server; raises ValueError that names the field which is wrong."""
    if expression.startswith(f"{EVERY} "):
        return _every(expression.removeprefix(EVERY).strip())
    texts = {"second": "0", **fields_of(expression)}
    calendar = StructuredCalendarSpec(comment=expression)
    for field in BY_COUNT[7]:
        text = texts.get(field.name, "*")
        if field is not YEAR or text != "*":
            getattr(calendar, field.name).extend(field.read(text))
    return calendar


def _every(text: str) -> IntervalSpec:
    every, slash, phase = text.partition("/")
    interval, offset = _seconds(every), _seconds(phase) if slash else 0
    if interval < 1 or offset >= interval:
        raise ValueError(f"{EVERY} {shorten(text)}: the interval is at least 1s, and longer than its phase")
    return IntervalSpec(interval=Duration(seconds=interval), phase=Duration(seconds=offset) if offset else None)


def _seconds(text: str) -> int:
    if not _SPAN.fullmatch(text):
        raise ValueError(f"{EVERY} takes a time span such as 90m or 1h30m, not {shorten(text)!r}")
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"([0-9]+)([dhms])", text))
