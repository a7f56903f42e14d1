"""Items from files: JSON Lines and CSV. Each is read once, as it is asked for, in constant memory."""

import csv
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO

from fanout.client import Item
from fanout.client.lines import BLANK, BYTE_ORDER_MARK, item_on, line_limit
from fanout.encoding import is_text
from fanout.errors import InvalidItem, InvalidRequest, OversizedItem, shorten

STDIN = "-"


def read_items(source: str, payload_limit: int) -> Iterator[Item]:
    """The items of a `.csv` file, else of JSON Lines; `-` is stdin. Raises InvalidItem, with position and line."""
    try:
        if source == STDIN:
            if sys.stdin is None:
                raise InvalidRequest("standard input cannot be read: it is closed")
            yield from read_jsonl(sys.stdin.buffer, "stdin", payload_limit)
        elif source.lower().endswith(".csv"):
            # A byte that is not UTF-8 is found in its row, whose line is known; the file is read far ahead of that.
            with open(source, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
                yield from read_csv(file, source, payload_limit)
        else:
            with open(source, "rb") as file:
                yield from read_jsonl(file, source, payload_limit)
    except OSError as error:
        raise InvalidRequest(f"{source} cannot be read: {error.strerror or error}") from None


def read_jsonl(file: BinaryIO, name: str, payload_limit: int) -> Iterator[Item]:
    """An item a line. Blank lines are skipped and take no position; a byte order mark at the start is ignored.

    An object whose only names are `key` and `payload` is an item; anything else is a payload.
    """
    limit = line_limit(payload_limit)
    number = position = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise OversizedItem(position, None, f"line {number} of {name} is longer than {limit} bytes")
        line = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).strip(BLANK)
        if line:
            yield item_on(line, position, f"line {number} of {name}")
            position += 1


def read_csv(file: TextIO, name: str, payload_limit: int) -> Iterator[Item]:
    """An item a row: an object of texts by the header's names; a column `key` is the key. Blank lines are skipped."""
    csv.field_size_limit(payload_limit)
    reader = csv.reader(file, strict=True)
    header: list[str] | None = None
    position = 0
    try:
        for row in reader:
            where = f"line {reader.line_num} of {name}"
            if not is_text("".join(row)):
                raise InvalidItem(position, None, f"{where}: not UTF-8")
            if header is None:
                header = _header(row, name)
            elif row:
                yield _row(header, row, position, where)
                position += 1
    except csv.Error as error:
        raise InvalidItem(position, None, f"after line {reader.line_num} of {name}: {error}") from None
    if header is None:
        raise InvalidRequest(f"{name} has no header line")


def _header(row: list[str], name: str) -> list[str]:
    for column, title in enumerate(row, 1):
        if not title:
            raise InvalidRequest(f"column {column} of {name} has no name in its header line")
        if title in row[: column - 1]:
            raise InvalidRequest(f"the name {shorten(title)!r} stands twice in the header line of {name}")
    if not row:
        raise InvalidRequest(f"the first line of {name} is blank; it has to name the columns")
    return row


def _row(header: list[str], row: list[str], position: int, where: str) -> Item:
    if len(row) != len(header):
        raise InvalidItem(position, None, f"{where} has {len(row)} cells, the header {len(header)}")
    payload: dict[str, Any] = dict(zip(header, row, strict=True))
    return Item(payload, payload.pop("key", None))
