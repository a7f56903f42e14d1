"""What a command says: its answer on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from pydantic_core import to_jsonable_python
from rich.console import Console, RenderableType

from fanout.errors import FanoutError

# Wide enough that no id or key is cut where the reader is a program or a file.
FILE_COLUMNS = 200


class OutputClosed(Exception):
    """Nobody reads the answer any more, as in `… | head -1`: the command ends quietly."""


class OutputFailed(FanoutError):
    """The answer cannot be written; nothing is wrong with any server."""

    code = "output_failed"

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the answer cannot be written: {error.strerror or error}")


class Output:
    """One command's answer. With `as_json` stdout carries JSON alone: what other code prints goes to stderr."""

    def __init__(self, stream: TextIO, as_json: bool) -> None:
        self._stream = stream
        self.as_json = as_json
        self.notes = _console(sys.stderr)
        self._console = _console(stream)

    @classmethod
    def standard(cls, as_json: bool) -> "Output":
        """Over this process's stdout, in UTF-8 whatever the locale."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                # Closed by whoever started this process: there is nobody to read it.
                setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
        made = cls(sys.stdout, as_json)
        if as_json:
            sys.stdout = sys.stderr
        return made

    def emit(self, value: Any) -> None:
        """One JSON object as a line, at once."""
        self.write(to_json(value) + "\n")
        self.flush()

    def show(self, *views: RenderableType) -> None:
        """Something for people, at once."""
        # At its end a capture writes to the stream after all, if only nothing.
        with _writing(), self._console.capture() as captured:
            for view in views:
                self._console.print(view)
        # Tables are padded to their full width, which only a terminal's background could need.
        self.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))
        self.flush()

    def write(self, text: str) -> None:
        """Writes to stdout as it is; raises OutputClosed."""
        with _writing():
            self._stream.write(text)

    def flush(self) -> None:
        """Hands on what was written; raises OutputClosed."""
        with _writing():
            self._stream.flush()

    def note(self, *lines: str) -> None:
        """Lines on stderr; that nobody reads them is no error."""
        with suppress(OSError):
            print(*lines, sep="\n", file=sys.stderr, flush=True)


@contextmanager
def _writing() -> Iterator[None]:
    """What goes wrong with the stream is no server's fault."""
    try:
        yield
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise OutputFailed(error) from None


def _console(stream: TextIO) -> Console:
    """One that shows a text as it is: what stands in square brackets or between colons may be a caller's."""
    columns = None if stream.isatty() else FILE_COLUMNS
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=columns)


def to_json(value: Any) -> str:
    """One line of JSON; times become ISO 8601 with their offset."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=to_jsonable_python)


def printable(text: str, limit: int = 300) -> str:
    """A caller's text for a terminal: no control characters, which could move its cursor or change its colours."""
    clean = "".join(character if character.isprintable() else " " for character in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def csv_row(values: Iterable[Any]) -> list[str]:
    """Cells: texts as they are, null as nothing, everything else as JSON."""
    return ["" if value is None else value if isinstance(value, str) else to_json(value) for value in values]
