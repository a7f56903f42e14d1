"""`results`: every row of a batch, streamed."""

import csv
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from fanout.cli.arguments import BatchReference
from fanout.cli.output import Output, csv_row, to_json
from fanout.cli.session import Session
from fanout.errors import InvalidRequest
from fanout.states import ItemStatus
from fanout.store import ResultRow

COLUMNS = ("seq", "item_key", "status", "attempts", "crashes", "result", "error")
Write = Callable[[str], object]


class Format(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    CSV = "csv"


async def results(
    session: Session,
    batch: BatchReference,
    status: Annotated[ItemStatus | None, typer.Option("--status", help="Only items in this state.")] = None,
    form: Annotated[Format, typer.Option("--format", help="JSON Lines, or CSV with JSON in its cells.")] = Format.JSONL,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Written whole or not at all; stdout by default.")
    ] = None,
    with_payload: Annotated[bool, typer.Option("--with-payload", help="Each item's payload too.")] = False,
) -> None:
    """Writes every item with its result or error, in the order of submission, in constant memory."""
    if session.output.as_json and form is Format.CSV and out is None:
        raise InvalidRequest("with --json stdout carries JSON alone: use --format jsonl, or --out FILE")
    async with session.connect() as client:
        rows = (await client.get(batch)).results(status, with_payload=with_payload)
        if out is None:
            await _write(session.output.write, rows, form, with_payload)
            return
        with whole_file(out) as file:
            count = await _write(_on_disk(file.write, out), rows, form, with_payload)
    _tell(session.output, out, count)


async def _write(write: Write, rows: AsyncIterator[ResultRow], form: Format, with_payload: bool) -> int:
    columns = (*COLUMNS, "payload") if with_payload else COLUMNS
    write_row = _csv_writer(write, columns) if form is Format.CSV else lambda row: write(to_json(row) + "\n")
    count = 0
    async for row in rows:
        write_row({column: getattr(row, column) for column in columns})
        count += 1
    return count


def _csv_writer(write: Write, columns: tuple[str, ...]) -> Callable[[dict[str, Any]], object]:
    class Sink:
        """What csv wants of a file."""

        def write(self, text: str) -> object:
            """Passes it on."""
            return write(text)

    writer = csv.writer(Sink(), lineterminator="\n")
    writer.writerow(columns)
    return lambda row: writer.writerow(csv_row(row.values()))


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A file that takes the place of `path` when the block ends well; else `path` stays as it was.

    Where `path` is a link, of what it leads to. Raises InvalidRequest for what is no file, such as a device.
    """
    with _naming(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file():
            raise InvalidRequest(f"{path} cannot be written: it is no file")
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(descriptor, 0o666 & ~umask)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            with _naming(path):
                file.flush()
        with _naming(path):
            os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _on_disk(write: Write, path: Path) -> Write:
    def named(text: str) -> object:
        with _naming(path):
            return write(text)

    return named


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from None


def _tell(output: Output, path: Path, count: int) -> None:
    if output.as_json:
        output.emit({"out": str(path), "rows": count})
    else:
        output.show(f"{count:,} rows written to {path}")
