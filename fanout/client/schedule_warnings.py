"""What may surprise whoever wrote a schedule. None of it keeps the schedule from being applied."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from fanout.client.clock_changes import ClockChange
from fanout.client.cron import EVERY, fields_of
from fanout.client.findings import some
from fanout.client.firing import parse_key
from fanout.client.schedule import Schedule

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning: a code for programs, and words for people."""

    code: str
    detail: str


def about(schedule: Schedule) -> Iterator[Warned]:
    """What can be told from the declaration alone."""
    if schedule.cron is not None:
        yield from _about_cron(schedule.cron, schedule.time_zone)
    if (
        not any(name in ("time", "local", "date") for _, name in parse_key(schedule.key))
        and schedule.dedup == "forever"
    ):
        yield Warned(
            "one_batch",
            f"the key {schedule.key!r} names no time and dedup is forever: only the first start ever makes a batch",
        )
    if schedule.overlap == "terminate_other":
        yield Warned(
            "terminate_other", "it ends the run that waits for the batch, not the batch: cancel_other does both"
        )


def _about_cron(cron: str, time_zone: str) -> Iterator[Warned]:
    if cron.startswith(f"{EVERY} "):
        yield Warned("every", f"{EVERY} counts from 1970-01-01T00:00Z, not from now, and {time_zone} changes nothing")
        return
    fields = fields_of(cron)
    if fields.get("year") == "*" and "second" not in fields:
        yield Warned("six_fields", "the sixth field is the year; seconds take seven fields, the first of them")
    if fields["day_of_month"] != "*" and fields["day_of_week"] != "*":
        yield Warned(
            "both_days", "it fires on days on which day of month and day of week both match, not on days with either"
        )


def about_times(schedule: Schedule, times: Sequence[datetime]) -> Iterator[Warned]:
    """What the next times tell."""
    if not times:
        yield Warned("never", "no such time comes")
    apart = min((later - earlier for earlier, later in pairwise(times)), default=None)
    if schedule.jitter and apart is not None and schedule.jitter >= apart:
        yield Warned(
            "jitter", f"the jitter of {schedule.jitter} is not shorter than {apart}, the time between two starts"
        )


def about_clock_change(
    change: ClockChange, named: Sequence[datetime], fired: Sequence[datetime], of_day: Sequence[datetime]
) -> Iterator[Warned]:
    """Readings of the clock which the expression names around a change, those at which the server fires, and all that
    the expression names on that day.
    """
    missing, unnamed = sorted({*named} - {*fired}), sorted({*fired} - {*named})
    if change.forward and _goes_on(change, fired):
        missing = unnamed = []
    if missing:
        none = ", so none on that day" if {*of_day} <= {*missing} else ""
        instead = f", but at {_list(unnamed)}" if unnamed else none
        yield Warned("clock_change", f"{_words(change)}: no start at {_list(missing)}{instead}")
    elif unnamed:
        yield Warned("clock_change", f"{_words(change)}: a start at {_list(unnamed)} too")
    if twice := [at for at, times in Counter(fired).items() if times > 1]:
        yield Warned("clock_change", f"{_words(change)}: two starts at {_list(twice)}")


def _goes_on(change: ClockChange, fired: Sequence[datetime]) -> bool:
    """Whether it fires in the hours before and after the readings that are left out: nobody misses a start then."""
    before = any(change.earlier - HOUR <= at < change.earlier for at in fired)
    return before and any(change.later <= at < change.later + HOUR for at in fired)


def _words(change: ClockChange) -> str:
    direction = "forward" if change.forward else "back"
    return (
        f"on {change.earlier:%Y-%m-%d} the clock is put {direction} from {change.before:%H:%M} to {change.after:%H:%M}"
    )


def _list(readings: Sequence[datetime]) -> str:
    return some(f"{at:%H:%M:%S}".removesuffix(":00") for at in readings)
