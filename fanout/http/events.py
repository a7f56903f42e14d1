"""`GET /batches/{id}/events`: a batch's messages as server-sent events."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fanout.client import FanoutClient
from fanout.http.routes import ApiRoute, problems
from fanout.http.service import TheBatch, TheClient
from fanout.live import Start

COMMENT_SECONDS = 15
STALLED_SECONDS = 30.0
"""A reader that takes nothing for so long has gone, or will come back."""
LAST_SECONDS = 1.0
RECONNECT_MILLISECONDS = 1_000
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="The last id that was read.")]

log = logging.getLogger("fanout.http")
routes = APIRouter(route_class=ApiRoute)


@routes.get(
    "/batches/{batch}/events",
    response_class=EventSourceResponse,
    responses={**problems(404), 204: {"description": "All was read, up to the batch's close."}},
)
async def follow_batch(client: TheClient, batch: TheBatch, last_event_id: LastEventId = None) -> Response:
    """The batch's messages as server-sent events: `snapshot`, `progress`, `stale`, `event`, `closed`, `reset`."""
    return await stream(client, batch.batch_id, last_event_id)


async def stream(client: FanoutClient, batch_id: UUID | str, last_event_id: str | None) -> Response:
    """The answer to a reader who has had the events up to `last_event_id`; raises UnknownBatch.

    204 to a reader who has had the batch's `closed`: an EventSource then stops. Nothing is held until the answer is
    sent, and nothing once the reader has gone.
    """
    batch = await client.get(batch_id)
    start = await client.hub.find_start(batch.batch_id, last_event_id)
    if start.over:
        return Response(status_code=204, headers=HEADERS)
    return EventStream(client, batch.batch_id, start)


class EventStream(EventSourceResponse):
    """One reader's stream; ends with a `closed`, with the reader, or within a second of the server's SIGTERM."""

    def __init__(self, client: FanoutClient, batch_id: UUID, start: Start) -> None:
        super().__init__(
            _server_sent(client, batch_id, start),
            headers=HEADERS,
            ping=COMMENT_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
            sep="\n",
            send_timeout=STALLED_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the stream; a reader that stalls is cut off, and resumes by its last id when it comes back."""
        unfinished = False

        async def watched(message: Message) -> None:
            nonlocal unfinished
            await send(message)
            unfinished = message.get("more_body", True)

        try:
            await super().__call__(scope, receive, watched)
        except SendTimeoutError:
            log.info("a reader took nothing for %g s and was cut off", STALLED_SECONDS)
            return
        if unfinished and self.active:
            # The server ends, which leaves the stream as it is.
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _server_sent(client: FanoutClient, batch_id: UUID, start: Start) -> AsyncGenerator[bytes, None]:
    # At once, so that a reader knows that it is connected.
    yield f"retry: {RECONNECT_MILLISECONDS}\n\n".encode()
    async with aclosing(client.hub.messages(batch_id, start)) as messages:
        async for message in messages:
            yield message.server_sent
