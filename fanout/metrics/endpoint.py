"""A few pages over HTTP on an address of their own, for scrapers and probes: GET alone, one request a connection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from fanout.errors import InvalidSetting

REQUEST_BYTES = 8_192
REQUEST_SECONDS = 5.0
MOST_CONNECTIONS = 32

log = logging.getLogger("fanout.metrics")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[], Awaitable[Answer]]


class Endpoint:
    """Serves pages by their path. Whatever goes wrong with a request costs that request alone."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str, port: int, setting: str) -> AsyncIterator[int]:
        """Listens for the block, and tells the port; raises InvalidSetting, naming `setting`, where it cannot."""
        try:
            server = await asyncio.start_server(self._accept, host, port, limit=REQUEST_BYTES)
        except (OSError, OverflowError, UnicodeError) as error:
            cause = getattr(error, "strerror", None) or error
            raise InvalidSetting(setting, f"nothing can listen on {host}:{port}: {cause}") from None
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            for task in list(self._open):
                task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answer, with_body = await self._answer(await reader.readuntil(b"\r\n\r\n"))
                body = answer.body.encode()
                head = (
                    f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + (body if with_body else b""))
                # To the last byte: what was left of it would keep the connection for a peer that does not read.
                writer.transport.set_write_buffer_limits(0)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A peer that says too much, too little or nothing gets no answer, and one that does not read no more of it.
            writer.transport.abort()
        finally:
            with suppress(OSError):
                writer.close()

    async def _answer(self, request: bytes) -> tuple[Answer, bool]:
        method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if method not in ("GET", "HEAD"):
            return Answer("only GET\n", HTTPStatus.METHOD_NOT_ALLOWED), True
        if page is None:
            return Answer(f"there are {', '.join(self._pages)}\n", HTTPStatus.NOT_FOUND), method == "GET"
        try:
            return await page(), method == "GET"
        except Exception:
            log.exception("a page could not be made")
            return Answer("error\n", HTTPStatus.INTERNAL_SERVER_ERROR), method == "GET"
