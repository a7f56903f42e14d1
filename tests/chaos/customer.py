"""Whoever submits and steers the batches of a run: every call is repeated, as documented, until it is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from temporalio.service import RPCError

from fanout import BatchHandle, Item, ServerUnreachable
from fanout.errors import KeyBusy
from fanout.store import OUTAGE
from tests.chaos.loads import Load
from tests.support import Deployment

PATIENCE_SECONDS = 60.0
CALL_SECONDS = 20.0
PAUSE_SECONDS = 0.3
AWAY: tuple[type[BaseException], ...] = (*OUTAGE, RPCError, ServerUnreachable, KeyBusy)
Answer = TypeVar("Answer")


async def patiently(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer to a call, which is made again for as long as a server is away."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await asyncio.wait_for(call(), CALL_SECONDS)
            except AWAY:
                await asyncio.sleep(PAUSE_SECONDS)


@dataclass
class Customer:
    """Submits `loads`; steers the batches that it has."""

    fanout: Deployment
    loads: list[Load]
    batches: dict[str, BatchHandle] = field(default_factory=dict)

    async def submit(self, load: Load, after_seconds: float) -> None:
        """Submits one batch."""
        await asyncio.sleep(after_seconds)
        items = [Item(payload, key=f"item {payload['number']}") for payload in load.payloads]
        self.batches[load.key] = await patiently(
            lambda: self.fanout.client.submit(load.handler, items, key=load.key, allow_unknown=True)
        )

    async def pause_and_resume(self, key: str, seconds: float) -> None:
        """Pauses a batch for some seconds."""
        batch = self.batches[key]
        await patiently(batch.pause)
        await asyncio.sleep(seconds)
        await patiently(batch.resume)

    async def retry(self, key: str) -> None:
        """Reopens what has failed."""
        await patiently(self.batches[key].retry)

    async def cancel(self, key: str) -> None:
        """Cancels a batch."""
        await patiently(lambda: self.batches[key].cancel("chaos"))
