"""Bodies of requests: read within limits of size and time, and by the one JSON rule of the product."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from typing import Any

from fastapi.requests import Request
from starlette.requests import ClientDisconnect

from fanout.client import Item
from fanout.client.lines import BLANK, BYTE_ORDER_MARK, item_on, line_limit
from fanout.encoding import UnstorableValue, decode
from fanout.errors import OversizedItem
from fanout.http.problems import Refusal

JSON = "application/json"
JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
SMALL_BYTES = 65_536
"""The limit of every body but that of a submit."""
WHOLE_BYTES = 16 * 1_048_576
"""The largest submit that is read whole, as JSON; as JSON Lines it is read a line at a time."""
SILENCE_SECONDS = 30.0
"""How long a sender may pause: a submit has its key locked meanwhile, and one of few turns."""
BYTES_PER_SECOND = 1_000
LINGER_SECONDS = 2.0
LINGER_BYTES = 32 * 1_048_576
# A decoder of less than this holds the loop up for less than anybody notices.
_INLINE_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What one submit may bring."""

    body_bytes: int = 1_073_741_824
    items: int = 5_000_000
    bytes_per_second: int = BYTES_PER_SECOND
    """The least pace of a body that is waited for."""


class ApiRequest(Request):
    """A request whose body is read by our rules, whoever reads it."""

    limit_bytes = SMALL_BYTES
    bytes_per_second = BYTES_PER_SECOND

    async def body(self) -> bytes:
        """The whole body; raises Refusal beyond `limit_bytes`, or where it is not JSON by its headers."""
        if not hasattr(self, "_body"):
            parts = [part async for part in self.pieces(self.limit_bytes)]
            self._body = b"".join(parts)
            if self._body or "content-type" in self.headers:
                self.check_type(JSON)
        return self._body

    async def json(self) -> Any:
        """The body's value by the JSON rule; raises Refusal."""
        body = await self.body()
        try:
            return decode(body) if len(body) < _INLINE_BYTES else await asyncio.to_thread(decode, body)
        except UnstorableValue as error:
            raise Refusal(422, "invalid_json", f"the body is refused: {error}", path="/") from None

    def check_type(self, *accepted: str) -> str:
        """The media type that the headers name; raises Refusal for any but these, and for encoded bodies.

        A form of some web page can send none of these, so that it can ask for nothing.
        """
        header = Message()
        header["content-type"] = self.headers.get("content-type", "")
        named = header.get_content_type() if self.headers.get("content-type") else "none"
        if named not in accepted:
            raise Refusal(415, "unsupported_media_type", f"the body is {' or '.join(accepted)}, not {named[:100]}")
        charset = header.get_content_charset("utf-8")
        if charset not in ("utf-8", "utf8", "us-ascii"):
            raise Refusal(415, "unsupported_media_type", f"the body is in UTF-8, not {charset[:100]}")
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise Refusal(415, "unsupported_media_type", f"the body is not encoded, and here it is {encoding[:100]}")
        return named

    async def pieces(self, limit: int) -> AsyncIterator[bytes]:
        """The body as it comes; raises Refusal beyond `limit` bytes, and for a sender that is silent or slow.

        What we ourselves take between two pieces is not counted against the sender.
        """
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        size = 0
        patience = SILENCE_SECONDS
        stream = self.stream()
        asked = time.monotonic()
        while (piece := await self._next(stream, patience)) is not None:
            # Waiting uses patience up, and what comes gives it back: never more than for one silence.
            patience += len(piece) / self.bytes_per_second - (time.monotonic() - asked)
            patience = min(SILENCE_SECONDS, patience)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            yield piece
            asked = time.monotonic()

    async def _next(self, stream: AsyncIterator[bytes], patience: float) -> bytes | None:
        try:
            async with asyncio.timeout(patience):
                return await anext(stream, None)
        except TimeoutError:
            detail = f"for {SILENCE_SECONDS:g} s less than {self.bytes_per_second:,} bytes of the body came a second"
            raise Refusal(408, "body_timeout", detail, {"Connection": "close"}) from None

    async def linger(self) -> None:
        """Takes what is still sent, for a moment: a sender that is cut off in the middle would not see the answer."""
        size = 0
        with suppress(TimeoutError, ClientDisconnect, RuntimeError):
            async with asyncio.timeout(LINGER_SECONDS):
                async for piece in self.stream():
                    size += len(piece)
                    if size > LINGER_BYTES:
                        return


def _too_large(limit: int) -> Refusal:
    hint = "" if limit > WHOLE_BYTES or limit == SMALL_BYTES else "; JSON Lines (application/x-ndjson) may be larger"
    return Refusal(413, "body_too_large", f"the body has more than {limit} bytes{hint}", limit=limit)


class JsonLines:
    """The items of a body of JSON Lines, one at a time; `line` is the number of the one that was read last."""

    blank_lines = 0
    line = 0

    def __init__(self, request: ApiRequest, limits: BodyLimits, payload_limit: int) -> None:
        self._pieces = request.pieces(limits.body_bytes)
        self._most_items = limits.items
        self._line_limit = line_limit(payload_limit)
        self._position = 0

    async def __aiter__(self) -> AsyncIterator[Item]:
        waiting: list[bytes] = []
        size = 0
        async for piece in self._pieces:
            *lines, rest = piece.split(b"\n")
            for line in lines:
                waiting.append(line)
                for item in self._items(b"".join(waiting)):
                    yield item
                waiting, size = [], 0
            waiting.append(rest)
            size += len(rest)
            self._check_length(size, self.line + 1)
        if last := b"".join(waiting):
            for item in self._items(last):
                yield item

    def _items(self, line: bytes) -> tuple[Item, ...]:
        """The item on the next line, or none where it is blank."""
        self.line += 1
        self._check_length(len(line), self.line)
        line = (line.removeprefix(BYTE_ORDER_MARK) if self.line == 1 else line).strip(BLANK)
        if not line:
            self.blank_lines += 1
            return ()
        check_count(self._position + 1, self._most_items, f"line {self.line}")
        self._position += 1
        return (item_on(line, self._position - 1, f"line {self.line}"),)

    def line_of(self, position: int) -> int | None:
        """The line of an item that was read before; not known where blank ones came."""
        return None if self.blank_lines else position + 1

    def _check_length(self, size: int, line: int) -> None:
        if size > self._line_limit:
            self.line = line
            reason = f"line {line} is longer than {self._line_limit} bytes"
            raise OversizedItem(self._position, None, reason, self._line_limit)


def check_count(count: int, limit: int, path: str) -> None:
    """Raises Refusal where there are more items than a submit may bring."""
    if count > limit:
        raise Refusal(413, "too_many_items", f"there are more than {limit} items", path=path, limit=limit)
