"""A schedule as it is declared: when it fires, what it then submits, and where its items come from."""

from collections.abc import Callable, Set
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from fanout.client.cron import read_cron
from fanout.client.dedup import Dedup
from fanout.client.durations import read_duration
from fanout.client.firing import DEFAULT_KEY, SAMPLE_TIME, Firing, check_time_zone
from fanout.client.items import Item, check_items, check_key, check_line, check_words, item_in
from fanout.client.limits import Limits
from fanout.client.requests import SOURCE_CHARACTERS
from fanout.client.submitting import TITLE_CHARACTERS, check_handler, check_range_size
from fanout.encoding import decode, encode
from fanout.errors import InvalidRequest
from fanout.names import SCHEDULE_ID

SHORTEST_CATCH_UP = timedelta(seconds=10)
LONGEST_SPAN = timedelta(days=365)
INLINE_BYTES = 1_000_000
"""Items that stand in the declaration travel with every start; Temporal takes twice as much."""
NOTE_CHARACTERS = 500
SOURCES = ("items", "payload", "sql", "glob")

Overlap = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]


def _said(check: Callable[[Any], Any]) -> AfterValidator:
    """A check in Fanout's words, which raises InvalidRequest, as pydantic takes it."""

    def checked(value: Any) -> Any:
        if value is not None:
            try:
                check(value)
            except InvalidRequest as error:
                raise ValueError(str(error)) from None
        return value

    return AfterValidator(checked)


def _read_span(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return read_duration("it", value)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None


def _read_dedup(value: object) -> object:
    return _read_span(value) if isinstance(value, str) and value[:1].isdigit() else value


def _check_whole(value: str | timedelta | None) -> str | timedelta | None:
    if isinstance(value, timedelta) and value % timedelta(seconds=1):
        raise ValueError(f"it is {value}; it is a whole number of seconds")
    return value


def _check_span(shortest: timedelta) -> AfterValidator:
    def checked(value: timedelta | None) -> timedelta | None:
        if value is not None and not shortest <= value <= LONGEST_SPAN:
            raise ValueError(f"it is {value}; it is at least {shortest.seconds}s and at most {LONGEST_SPAN.days}d")
        _check_whole(value)
        return value

    return AfterValidator(checked)


def _check_id(value: str) -> str:
    if not SCHEDULE_ID.fullmatch(value):
        raise ValueError(f"an id matches {SCHEDULE_ID.pattern}")
    return value


def _check_cron(value: str | None) -> str | None:
    if value is None:
        return None
    expression = value.strip()
    read_cron(expression)
    return expression


def _check_glob(value: str) -> None:
    check_words("a pattern", value, SOURCE_CHARACTERS)
    if not value.startswith("/"):
        raise InvalidRequest("it starts with /, as a worker's folder is not yours")


def _plain(value: Any) -> Any:
    """As the JSON that it is sent as: models become objects, times become texts. Raises ValueError."""
    text = encode(value)
    if len(text.encode()) > INLINE_BYTES:
        raise ValueError(f"it has {len(text.encode())} bytes as JSON; the limit is {INLINE_BYTES}, use sql or glob")
    return decode(text)


def _check_items(value: list[Any] | None) -> list[Any] | None:
    if value is None:
        return None
    plain: list[Any] = _plain([_as_json(each, position) for position, each in enumerate(value)])
    try:
        check_items([item_in(each, position) for position, each in enumerate(plain)], INLINE_BYTES)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    return plain


def _as_json(item: Any, position: int) -> Any:
    if not isinstance(item, Item):
        return item
    # With its position for a key, as without one, so that a payload is never taken for an item.
    return {"key": str(position) if item.key is None else item.key, "payload": item.payload}


Span = Annotated[timedelta | None, BeforeValidator(_read_span)]


class Schedule(BaseModel):
    """Submits a batch whenever it fires; checked when it is made. Time spans may be written as 90s, 10m, 2h, 7d.

    `cron` or `interval`, exactly one of them, says when; an expression is read by Temporal's rules, in `time_zone`.
    `items`, `payload` (one item), `sql` (a query on Fanout's database that reads) or `glob` (files), exactly one, says
    what: the last two are looked up on a worker when it fires. `key` names the batch: `{schedule}`, `{time}`, `{local}`
    and `{date}` are replaced by the id and the time that it was due. `overlap` is Temporal's policy for a batch of this
    schedule that is open. Ticks that a server missed are made up for within `catch_up`. `paused` and `note` count when
    it is created; later they are an operator's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, AfterValidator(_check_id)]
    handler: Annotated[str, _said(check_handler)]
    cron: Annotated[str | None, AfterValidator(_check_cron)] = None
    interval: Annotated[Span, _check_span(timedelta(seconds=1))] = None
    time_zone: Annotated[str, _said(check_time_zone)] = "UTC"
    jitter: Annotated[Span, _check_span(timedelta(0))] = None
    overlap: Overlap = "skip"
    catch_up: Annotated[timedelta, BeforeValidator(_read_span), _check_span(SHORTEST_CATCH_UP)] = timedelta(minutes=10)
    items: Annotated[list[Any] | None, AfterValidator(_check_items)] = None
    payload: Annotated[Any, AfterValidator(_plain)] = None
    sql: Annotated[str | None, _said(lambda sql: check_words("a query", sql, SOURCE_CHARACTERS))] = None
    glob: Annotated[str | None, _said(_check_glob)] = None
    key: str = DEFAULT_KEY
    title: Annotated[str | None, _said(lambda title: check_line("a title", title, TITLE_CHARACTERS))] = None
    range_size: Annotated[int | None, _said(check_range_size)] = None
    max_failures: Annotated[int | str | None, _said(lambda given: Limits(max_failures=given))] = None
    on_budget: Literal["pause", "fail"] | None = None
    deadline: Annotated[Span, _check_span(timedelta(seconds=1))] = None
    on_close: Annotated[str | None, _said(check_handler)] = None
    dedup: Annotated[str | timedelta, BeforeValidator(_read_dedup), AfterValidator(_check_whole), _said(Dedup.of)] = (
        "forever"
    )
    paused: bool = False
    note: Annotated[str | None, _said(lambda note: check_words("a note", note, NOTE_CHARACTERS))] = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name, reason in crossed(self.model_fields_set):
            raise ValueError(f"{name}: {reason}")
        if fault := key_fault(self.id, self.key, self.time_zone):
            raise ValueError(f"key: {fault}")
        return self

    @property
    def request(self) -> dict[str, Any]:
        """What each of its starts asks for, as the workflow `Batch` takes it."""
        firing = {"id": self.id, "time_zone": self.time_zone, "waits": self.overlap != "allow_all"}
        options = {
            "title": self.title,
            "range_size": self.range_size,
            "max_failures": self.max_failures,
            "on_budget": self.on_budget,
            "deadline": _text(self.deadline),
            "on_close": self.on_close,
            "dedup": None if self.dedup == "forever" else _text(self.dedup),
        }
        given = {name: value for name, value in options.items() if value is not None}
        return {"schedule": firing, "handler": self.handler, "key": self.key, **self._source, **given}

    @property
    def _source(self) -> dict[str, Any]:
        if self.sql is not None:
            return {"sql": self.sql}
        if self.glob is not None:
            return {"glob": self.glob}
        return {"items": [_as_json(Item(self.payload), 0)] if self.items is None else self.items}


def _text(span: str | timedelta | None) -> str | None:
    return f"{int(span.total_seconds())}s" if isinstance(span, timedelta) else span


def crossed(given: Set[str]) -> list[tuple[str, str]]:
    """What is wrong with the fields that are given, taken together: a field and the reason for each fault."""
    faults = []
    if len(when := sorted(given & {"cron", "interval"})) != 1:
        faults.append((" and ".join(when) or "cron", "a schedule has exactly one of cron and interval"))
    if len(sources := [name for name in SOURCES if name in given]) != 1:
        faults.append((" and ".join(sources) or "items", f"a schedule has exactly one of {', '.join(SOURCES)}"))
    if "on_budget" in given and "max_failures" not in given:
        faults.append(("on_budget", "max_failures, which it is about, is not given"))
    return faults


def key_fault(schedule_id: str, template: object, time_zone: str) -> str | None:
    """What is wrong with a key's template: the longest key that it can make is checked too."""
    try:
        check_key(Firing(schedule_id, time_zone).key(template, SAMPLE_TIME))
    except InvalidRequest as error:
        return str(error)
    return None
