"""A submit as one JSON object, as Temporal's own program, its Web UI and its Schedules send it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fanout.client.dedup import Dedup
from fanout.client.durations import read_duration
from fanout.client.firing import DEFAULT_KEY, Firing
from fanout.client.items import Item, check_words, item_in
from fanout.client.limits import Limits
from fanout.client.submitting import FOREVER, SubmitOptions
from fanout.errors import InvalidRequest, shorten

NAMES = (
    "handler",
    "items",
    "key",
    "title",
    "range_size",
    "max_failures",
    "on_budget",
    "deadline",
    "on_close",
    "dedup",
    "allow_unknown",
)
SOURCES = ("items", "sql", "glob")
SOURCE_CHARACTERS = 100_000
OF_SCHEDULES = ("schedule", "sql", "glob")
"""What a request may name too once it names its schedule: the items are then looked up when it fires."""


@dataclass(frozen=True, slots=True)
class Request:
    """What such an object asks for."""

    options: SubmitOptions
    items: Sequence[Any]
    allow_unknown: bool
    sql: str | None = None
    glob: str | None = None
    firing: Firing | None = None

    @classmethod
    def read(cls, given: object, origin: str, fired_at: datetime | None = None) -> "Request":
        """From decoded JSON; raises InvalidRequest in the words of any other submit, so that no name is ignored.

        One that names its schedule has a template for a key, which is filled in with `fired_at`.
        """
        if not isinstance(given, dict):
            raise InvalidRequest(f"a batch is asked for by a JSON object, not {type(given).__name__}")
        names = NAMES + OF_SCHEDULES if "schedule" in given else NAMES
        for name in given:
            if name not in names:
                raise InvalidRequest(f"there is no {shorten(repr(name))} in a request; there are {', '.join(names)}")
        firing = Firing.read(given["schedule"]) if "schedule" in given else None
        items, allow_unknown = _inline(given), given.get("allow_unknown", False)
        if not isinstance(allow_unknown, bool):
            raise InvalidRequest(f"allow_unknown is true or false, not {shorten(repr(allow_unknown))}")
        if firing is not None:
            given = {**given, "key": firing.key(given.get("key", DEFAULT_KEY), fired_at)}
        return cls(_options(given, origin), items, allow_unknown, given.get("sql"), given.get("glob"), firing)

    def each(self) -> Iterator[Item]:
        """The items: an object whose only names are `key` and `payload` is one, anything else is a payload."""
        for position, value in enumerate(self.items):
            yield item_in(value, position)


def _inline(given: dict[str, Any]) -> list[Any]:
    """The items that stand in the request, none where it names another source."""
    named, items = [name for name in SOURCES if name in given], given.get("items")
    if len(named) > 1:
        raise InvalidRequest(f"a request has one of {', '.join(SOURCES)}, not {' and '.join(named)}")
    if named in (["sql"], ["glob"]):
        check_words(named[0], given[named[0]], SOURCE_CHARACTERS)
        return []
    if not isinstance(items, list):
        raise InvalidRequest(f"items is a list of payloads or of items, not {type(items).__name__}")
    return items


def _options(given: dict[str, Any], origin: str) -> SubmitOptions:
    deadline, dedup = given.get("deadline"), given.get("dedup")
    return SubmitOptions(
        handler=given.get("handler", ""),
        key=given.get("key"),
        title=given.get("title"),
        range_size=given.get("range_size"),
        origin=origin,
        limits=Limits(
            given.get("max_failures"),
            given.get("on_budget"),
            None if deadline is None else read_duration("deadline", deadline),
        ),
        on_close=given.get("on_close"),
        dedup=FOREVER if dedup is None else Dedup.read("dedup", dedup),
        # Looked up anew at each tick, such items may differ where the request does not.
        by_key_alone="sql" in given or "glob" in given,
    )
