"""How processes log: one record a line, as text for people or as JSON for programs, and no text can forge a line."""

import json
import logging
import sys
from collections.abc import MutableMapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from uuid import UUID

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

FIELDS = ("batch_id", "handler", "key", "item_key", "seq", "attempt")
"""What a line about a batch or an item carries beside its message."""
FIELD_CHARACTERS = 400
log = logging.getLogger("fanout")

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class HasFields(Protocol):
    """An item at work."""

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every line that is logged meanwhile."""


_item: ContextVar[HasFields | None] = ContextVar("fanout_item", default=None)
"""The item whose handler runs here: nothing else tells whose code it is that calls some logger."""


def about(batch_id: UUID, **others: object) -> dict[str, Any]:
    """The fields of a line about a batch or an item, as the argument `extra` of a logger's methods."""
    return {"batch_id": str(batch_id), **others}


def begin_item(item: HasFields) -> Token[HasFields | None]:
    """From here on whatever this task or thread logs carries the item's fields, until `end_item` or the task's end."""
    return _item.set(item)


def end_item(token: Token[HasFields | None]) -> None:
    """What is logged from here on is about no item."""
    _item.reset(token)


class ItemLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds an item's fields to what a handler logs; a handler's own `extra` stays beside them."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message as it is, the fields of both."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def printable(text: str) -> str:
    """The text in one line, with every character escaped that could end a line or act on a terminal."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return "".join(f"\\u{unit:04x}" for unit in _units(ord(character)))


def _units(code: int) -> tuple[int, ...]:
    """The UTF-16 units of a character, as JSON escapes it."""
    return (code,) if code < 0x10000 else (0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF))


class JsonLines(logging.Formatter):
    """One JSON object a record, with the fields and whatever `extra` holds beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            **_extra(record),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # What JSON itself leaves as it is but ends a line for some readers is escaped afterwards: inside strings only,
        # since all else in the line is printable.
        return printable(_json(line))


class TextLines(logging.Formatter):
    """Time, level, logger, message and fields; the lines of a traceback stand indented, behind a bar."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and those of a traceback."""
        at = datetime.fromtimestamp(record.created).astimezone().isoformat(sep=" ", timespec="milliseconds")
        head = f"{at} {record.levelname} {record.name} {printable(_message(record))}"
        extra = _extra(record)
        fields = " ".join(f"{name}={_value(extra[name])}" for name in FIELDS if extra.get(name) is not None)
        lines = [f"{head} [{fields}]" if fields else head]
        if record.exc_info:
            lines += [f"  | {printable(line)}" for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(lines)


def _message(record: logging.LogRecord) -> str:
    """What a handler asks to log may fail to become a text; the line is written all the same."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!r:.1000} (its arguments do not fit: {type(error).__name__})"


def _json(line: dict[str, Any]) -> str:
    """JSON for any reader; where a handler's own fields have no such form, what can be shown of each."""
    try:
        return json.dumps(line, ensure_ascii=False, allow_nan=False, default=_shown)
    except (TypeError, ValueError, RecursionError):
        shown = {name: value if isinstance(value, int | None) else _shown(value) for name, value in line.items()}
        return json.dumps(shown, ensure_ascii=False)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in STANDARD}
    item = _item.get()
    return own if item is None else {**item.log_fields, **own}


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"({type(error).__name__} when it was shown)"


def _value(value: object) -> str:
    text = _shown(value)[:FIELD_CHARACTERS]
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "\\[]=')
    return text if plain and text else printable(json.dumps(text, ensure_ascii=False))


@dataclass(frozen=True)
class LogSetup:
    """What is logged to stderr, and how."""

    level: str = "info"
    format: LogFormat = "text"

    def apply(self) -> None:
        """Sets up this process's logging; call it once."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines() if self.format == "json" else TextLines())
        logging.basicConfig(level=self.level.upper(), handlers=[handler])

    def say(self, *lines: str) -> None:
        """Tells whoever looks at stderr, whatever the level: lines of text, or records of the log where it is JSON."""
        if self.format == "json":
            for line in lines:
                log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", (line,), None))
        else:
            print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)

    @classmethod
    def of_this_process(cls) -> "LogSetup | None":
        """What was set up here, for child processes to do the same; None where somebody else set up the logging."""
        root = logging.getLogger()
        for handler in root.handlers:
            if isinstance(handler.formatter, JsonLines | TextLines):
                level = logging.getLevelName(root.level).lower()
                return cls(level, "json" if isinstance(handler.formatter, JsonLines) else "text")
        return None
