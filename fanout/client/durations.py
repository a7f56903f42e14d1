"""Time spans as people write them."""

import re
from datetime import timedelta

from fanout.errors import InvalidRequest, shorten

_DURATION = re.compile(r"([0-9]{1,12})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_duration(what: str, given: object) -> timedelta:
    """A time span such as 90s, 10m, 2h or 7d; raises InvalidRequest naming `what` it is."""
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise InvalidRequest(f"{what} is {shorten(repr(given))}; it is a number with a unit, as 90s, 10m, 2h or 7d")
