"""When a key may name a new batch: the dedup policy of a submit."""

from dataclasses import dataclass
from datetime import timedelta

from fanout.client.durations import read_duration
from fanout.errors import InvalidRequest, shorten

LONGEST_SPAN = timedelta(days=3650)
NAMES = ("forever", "open", "success")
DURATION = "duration"


@dataclass(frozen=True, slots=True)
class Dedup:
    """What a submit makes of a closed batch that has its key; every submit joins one that is open.

    `forever`: it is done, nothing runs again. `open`: a new batch. `success`: a new batch unless it closed as
    `completed`. With a span: a new batch once that long has passed since it closed, by the database's clock.
    """

    name: str = NAMES[0]
    span: timedelta | None = None

    @classmethod
    def of(cls, given: object) -> "Dedup":
        """From a name or a time span; raises InvalidRequest."""
        if given in NAMES:
            return cls(str(given))
        if not isinstance(given, timedelta):
            raise InvalidRequest(f"dedup is {shorten(repr(given))}; it is {', '.join(NAMES)} or a time span")
        if not timedelta(0) < given <= LONGEST_SPAN:
            raise InvalidRequest(f"dedup is {given}; a time span is above 0 and at most {LONGEST_SPAN.days} days")
        return cls(DURATION, given)

    @classmethod
    def read(cls, what: str, given: object) -> "Dedup":
        """From a text, as on the command line: a name, or a duration such as 7d."""
        if given in NAMES:
            return cls.of(given)
        try:
            return cls.of(read_duration(what, given))
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}, or one of {', '.join(NAMES)}") from None

    @property
    def given(self) -> str | timedelta:
        """What `of` made it from."""
        return self.name if self.span is None else self.span

    @property
    def stored(self) -> str | float | None:
        """What the row of a batch remembers: nothing of the default, else the name, or the span in seconds."""
        if self.span is not None:
            return self.span.total_seconds()
        return None if self.name == NAMES[0] else self.name

    @property
    def outlives_purging(self) -> bool:
        """Whether a key whose batch was purged is still taken."""
        return self.name != "open"
