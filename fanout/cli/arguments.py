"""Arguments that several commands take, and how their texts are read."""

import re
from datetime import timedelta
from typing import Annotated

import typer

from fanout.errors import InvalidRequest, shorten

_DURATION = re.compile(r"([0-9]{1,12})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

BatchReference = Annotated[str, typer.Argument(metavar="BATCH", show_default=False, help="A batch id, or HANDLER/KEY.")]
HandlerName = Annotated[str, typer.Argument(metavar="HANDLER", show_default=False, help="A handler's name.")]


def duration(option: str, text: str | None) -> timedelta | None:
    """A time span such as 90s, 10m, 2h or 7d; raises InvalidRequest naming the option."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text)
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else _refuse(option, text)
    except OverflowError:
        return _refuse(option, text)


def _refuse(option: str, text: str) -> timedelta:
    raise InvalidRequest(f"{option} is {shorten(text)!r}; it is a number with a unit, as 90s, 10m, 2h or 7d")


def failures_in(text: str | None) -> int | str | None:
    """A number of items, or whatever else was given, for the client to judge."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,12}", text) else text
