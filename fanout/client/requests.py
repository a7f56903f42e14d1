"""A submit as one JSON object, as Temporal's own program and Web UI send it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fanout.client.dedup import Dedup
from fanout.client.durations import read_duration
from fanout.client.items import Item, item_in
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


@dataclass(frozen=True, slots=True)
class Request:
    """What such an object asks for."""

    options: SubmitOptions
    items: Sequence[Any]
    allow_unknown: bool

    @classmethod
    def read(cls, given: object, origin: str) -> "Request":
        """From decoded JSON; raises InvalidRequest in the words of any other submit, so that no name is ignored."""
        if not isinstance(given, dict):
            raise InvalidRequest(f"a batch is asked for by a JSON object, not {type(given).__name__}")
        for name in given:
            if name not in NAMES:
                raise InvalidRequest(f"there is no {shorten(repr(name))} in a request; there are {', '.join(NAMES)}")
        items, allow_unknown = given.get("items"), given.get("allow_unknown", False)
        if not isinstance(items, list):
            raise InvalidRequest(f"items is a list of payloads or of items, not {type(items).__name__}")
        if not isinstance(allow_unknown, bool):
            raise InvalidRequest(f"allow_unknown is true or false, not {shorten(repr(allow_unknown))}")
        return cls(_options(given, origin), items, allow_unknown)

    def each(self) -> Iterator[Item]:
        """The items: an object whose only names are `key` and `payload` is one, anything else is a payload."""
        for position, value in enumerate(self.items):
            yield item_in(value, position)


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
    )
