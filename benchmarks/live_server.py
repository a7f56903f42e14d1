"""The web server whose readers `live` measures: `python -m benchmarks.live_server PORT`."""

import asyncio
import sys
from uuid import UUID

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fanout import FanoutClient
from fanout.exits import leave
from fanout.http.events import stream

HOST = "127.0.0.1"


def app(client: FanoutClient) -> Starlette:
    """Nothing but the stream of events."""

    async def events(request: Request) -> Response:
        return await stream(client, UUID(request.path_params["id"]), request.headers.get("last-event-id"))

    return Starlette(routes=[Route("/batches/{id}/events", events)])


async def main(port: int) -> None:
    """Serves until SIGTERM."""
    async with FanoutClient.connect() as client:
        config = uvicorn.Config(app(client), host=HOST, port=port, log_level="warning", lifespan="off", backlog=1_024)
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
    leave(0)
