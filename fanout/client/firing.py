"""What a schedule's tick knows: whose it is, and when it was due. Keys of batches are made of it."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fanout.errors import InvalidRequest, shorten

KEY_NAMES = ("schedule", "time", "local", "date")
"""What a key can name: the schedule's id; when it was due, in UTC and in the schedule's zone; the day there."""
DEFAULT_KEY = "{schedule}/{time}"
NO_ZONES = ("posix/", "right/", "posixrules", "localtime", "Factory")
"""What some systems keep beside the zones; no server knows them."""
SAMPLE_TIME = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Firing:
    """Which schedule asks for a batch, and whether its run is to last until that is closed."""

    schedule: str
    time_zone: str = "UTC"
    waits: bool = False

    @classmethod
    def read(cls, given: object) -> "Firing":
        """From decoded JSON; raises InvalidRequest."""
        names = {"id", "time_zone", "waits"}
        if not isinstance(given, dict) or not {"id"} <= given.keys() <= names or not isinstance(given["id"], str):
            raise InvalidRequest(f"schedule is an object with {', '.join(sorted(names))}; id is a string")
        if not isinstance(waits := given.get("waits", False), bool):
            raise InvalidRequest(f"waits is true or false, not {shorten(repr(waits))}")
        return cls(given["id"], check_time_zone(given.get("time_zone", "UTC")), waits)

    def key(self, template: object, at: datetime | None) -> str:
        """The key that the template means for a tick that was due at `at`; raises InvalidRequest.

        A start by hand was never due: a time of its own would be another one in each of its runs, and so the key.
        """
        parts = parse_key(template)
        if at is None:
            if any(name not in (None, "schedule") for _, name in parts):
                raise InvalidRequest(f"key {shorten(str(template))!r} names a time, but no schedule made this start")
            at = SAMPLE_TIME
        local = at.astimezone(ZoneInfo(self.time_zone)).replace(microsecond=0)
        values = {
            "schedule": self.schedule,
            "time": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "local": local.isoformat(),
            "date": local.date().isoformat(),
        }
        return "".join(text + ("" if name is None else values[name]) for text, name in parts)


def parse_key(template: object) -> list[tuple[str, str | None]]:
    """The pieces of a key's template: text, and the name that follows it. Raises InvalidRequest."""
    if not isinstance(template, str):
        raise InvalidRequest(f"key must be a string, not {type(template).__name__}")
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidRequest(f"key {shorten(template)!r}: {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in KEY_NAMES or form or conversion):
            known = ", ".join(f"{{{each}}}" for each in KEY_NAMES)
            raise InvalidRequest(f"key {shorten(template)!r} names {{{shorten(name)}}}; it can name {known}")
    return [(text, name) for text, name, _, _ in parts]


def check_time_zone(name: object) -> str:
    """The name of a zone of the IANA database; raises InvalidRequest."""
    if isinstance(name, str) and not name.startswith(NO_ZONES):
        # The database is a folder, in which a name may be anything.
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name).key
    raise InvalidRequest(f"time_zone {shorten(repr(name))} is no name of the IANA database, as Europe/Berlin")
