"""A web server in the test's process with the endpoint of events, and readers of server-sent events."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fanout import FanoutClient
from fanout.errors import UnknownBatch
from fanout.http.events import stream

HOST = "127.0.0.1"
READ_SECONDS = 30.0


def app(client: FanoutClient) -> Starlette:
    """Nothing but the stream of events."""

    async def events(request: Request) -> Response:
        try:
            return await stream(client, UUID(request.path_params["id"]), request.headers.get("last-event-id"))
        except UnknownBatch:
            return Response(status_code=404)

    return Starlette(routes=[Route("/batches/{id}/events", events)])


@asynccontextmanager
async def serving(client: FanoutClient) -> AsyncIterator[str]:
    """The address of a server for the block."""
    listener = socket.create_server((HOST, 0))
    config = uvicorn.Config(app(client), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    # `serve` would take the signals of the test's process.
    task = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@dataclass(frozen=True)
class Heard:
    """One server-sent event."""

    kind: str
    id: str | None
    data: dict[str, Any]


@dataclass
class Ears:
    """A reader that comes back with its last id, as a browser does."""

    url: str
    last_event_id: str | bytes | None = None
    heard: list[Heard] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    comments: int = 0

    async def listen(self, http: httpx.AsyncClient) -> AsyncIterator[Heard]:
        """One request: its messages until the server ends them."""
        given = self.last_event_id.encode() if isinstance(self.last_event_id, str) else self.last_event_id
        headers = {} if given is None else {b"Last-Event-ID": given}
        async with http.stream("GET", self.url, headers=headers) as response:
            self.answers.append(response.status_code)
            self.headers = response.headers
            lines: list[str] = []
            async for line in response.aiter_lines():
                if line:
                    lines.append(line)
                elif (found := self._parse(lines)) is not None:
                    lines = []
                    self.heard.append(found)
                    yield found
                else:
                    lines = []

    def _parse(self, lines: list[str]) -> Heard | None:
        self.comments += sum(line.startswith(":") for line in lines)
        fields = dict(line.split(":", 1) for line in lines if not line.startswith(":"))
        if "id" in fields:
            self.last_event_id = fields["id"].strip() or None
        if "data" not in fields:
            return None
        number = fields["id"].strip() if "id" in fields else None
        return Heard(fields["event"].strip(), number, json.loads(fields["data"]))

    async def all(self) -> list[Heard]:
        """Everything up to the server's end of one request."""
        async with httpx.AsyncClient(timeout=READ_SECONDS) as http:
            return [message async for message in self.listen(http)]


def reader(address: str, batch_id: UUID, last_event_id: str | bytes | None = None) -> Ears:
    """A reader of one batch."""
    return Ears(f"{address}/batches/{batch_id}/events", last_event_id)
