"""When a time zone's clocks are put forward or back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """One change, at an instant: the clock's readings just before and after it are `before` and `after`."""

    zone: ZoneInfo
    at: datetime
    before: datetime
    after: datetime

    @property
    def forward(self) -> bool:
        """Whether readings are left out; else they come twice."""
        return self.after > self.before

    @property
    def earlier(self) -> datetime:
        """The first reading that is left out, or comes twice."""
        return min(self.before, self.after)

    @property
    def later(self) -> datetime:
        """The first reading after these."""
        return max(self.before, self.after)


def clock_changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """The changes between two instants. Two within one day that undo each other are overlooked."""
    low = start
    while low < end:
        high = min(low + DAY, end)
        if _offset(zone, low) != _offset(zone, high):
            yield _change(zone, low, high)
        low = high


def _change(zone: ZoneInfo, low: datetime, high: datetime) -> ClockChange:
    before = _offset(zone, low)
    while high - low > SECOND:
        middle = low + (high - low) // 2 // SECOND * SECOND
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    naive = high.replace(tzinfo=None)
    return ClockChange(zone, high, naive + before, naive + _offset(zone, high))


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)
