"""The server of the tests as a process of its own: `python -m tests.live.app PORT`."""

import asyncio
import sys

import uvicorn

from fanout import FanoutClient
from tests.live.web import HOST, app


async def main(port: int) -> None:
    async with FanoutClient.connect() as client:
        config = uvicorn.Config(app(client), host=HOST, port=port, log_level="info", lifespan="off")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
