"""What all endpoints work with: one client, and limits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from fastapi.requests import Request

from fanout.client import BatchHandle, FanoutClient
from fanout.errors import UnknownBatch
from fanout.http.bodies import BodyLimits
from fanout.http.queries import is_utf_8

SUBMITS_AT_ONCE = 5
"""Each holds one of the client's ten connections while its items come; the others answer everybody else."""

ClientSource = FanoutClient | Callable[[], FanoutClient]


def connected(source: ClientSource) -> FanoutClient:
    """The client itself, or what the function gives now that it is needed."""
    return source if isinstance(source, FanoutClient) else source()


@dataclass
class Service:
    """One per router; `source` is the client, or what gives it once requests come."""

    source: ClientSource
    limits: BodyLimits
    submits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SUBMITS_AT_ONCE))

    @property
    def client(self) -> FanoutClient:
        """The client."""
        return connected(self.source)

    async def provide(self, request: Request) -> None:
        """Lets the endpoints of this router find this service."""
        request.state.fanout = self


def _service(request: Request) -> Service:
    found: Service = request.state.fanout
    return found


def _client(request: Request) -> FanoutClient:
    return _service(request).client


async def _batch(batch: str, request: Request) -> BatchHandle:
    if not is_utf_8(request.scope.get("raw_path") or b""):
        raise UnknownBatch(batch)
    return await _client(request).get(batch)


TheService = Annotated[Service, Depends(_service)]
TheClient = Annotated[FanoutClient, Depends(_client)]
TheBatch = Annotated[BatchHandle, Depends(_batch)]
"""The batch that the path names; raises UnknownBatch."""
