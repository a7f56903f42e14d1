"""Readers of one batch agree on every event, each exactly once, however often their connections are cut."""

import asyncio
import json
import random
from contextlib import suppress

import httpx

from fanout import BatchHandle, Item
from tests.live.support import LISTENERS, until
from tests.live.web import READ_SECONDS, Ears, reader, serving
from tests.support import Deployment

CUTS = 20
ITEMS = 200


async def test_all_readers_agree_across_twenty_cuts_of_every_connection(fanout: Deployment) -> None:
    await fanout.start_worker("--concurrency", "5", handlers="tests.handlers.live")
    go = fanout.folder / "go"
    # Those at the end wait until every reader has been cut off some times.
    last = [{"waits_for": str(go)} if seq >= ITEMS - 10 else {} for seq in range(ITEMS)]
    items = [Item({"fails": seq % 5 == 0, "seconds": 0.2, **last[seq]}, key=f"k{seq}") for seq in range(ITEMS)]
    batch = await fanout.client.submit("test.live", items)
    async with serving(fanout.client) as address:
        ears, curl = reader(address, batch.batch_id), Curl(f"{address}/batches/{batch.batch_id}/events")
        cutting = asyncio.create_task(cut_listeners(fanout))

        async def let_go_on() -> None:
            await until(lambda: len(ears.answers) > 3 and curl.calls > 3)
            go.touch()

        own, *_ = await asyncio.gather(from_library(batch), with_cuts(ears), curl.read_to_the_end(), let_go_on())
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
    stored = [event["id"] for event in await fanout.client.store.read_events(batch.batch_id, 0)]
    assert own == curl.ids == [int(message.id) for message in ears.heard if message.id] == stored
    assert [message.kind for message in ears.heard].count("closed") == 1
    assert len(ears.answers) > 3
    assert curl.calls > 3
    failures = [message for message in ears.heard if message.data.get("kind") == "failed"]
    assert len(failures) == ITEMS // 5
    shown = [message.data for message in ears.heard if message.kind in ("snapshot", "progress")]
    settled = [status["completed"] + status["failed"] for status in shown]
    assert settled == sorted(settled)
    assert settled[-1] == ITEMS
    assert all(status["total"] == ITEMS for status in shown)


async def from_library(batch: BatchHandle) -> list[int]:
    """By the client, which begins anew after every few messages."""
    ids: list[int] = []
    closed = False
    while not closed:
        count = random.randrange(1, 8)
        async for message in batch.events(ids[-1] if ids else None):
            if message.id is not None:
                ids.append(message.id)
            closed = message.kind == "closed"
            count -= 1
            if count == 0:
                break
    return ids


async def with_cuts(ears: Ears) -> None:
    """Over HTTP, cut after every few messages and begun again with the last id, until the server says: over."""
    while ears.answers[-1:] != [204]:
        count = random.randrange(2, 10) if len(ears.answers) < CUTS else 10_000
        async with httpx.AsyncClient(timeout=READ_SECONDS) as http:
            async for _ in ears.listen(http):
                count -= 1
                if count == 0:
                    break


class Curl:
    """`curl -N`, killed again and again; what it printed to the last whole message counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ids: list[int] = []
        self.calls = 0

    async def read_to_the_end(self) -> None:
        while not await self._call(seconds=random.uniform(0.3, 1.5) if self.calls < CUTS else READ_SECONDS):
            pass

    async def _call(self, seconds: float) -> bool:
        self.calls += 1
        resumed = ["-H", f"Last-Event-ID: {self.ids[-1]}"] if self.ids else []
        curl = await asyncio.create_subprocess_exec("curl", "-sN", *resumed, self.url, stdout=asyncio.subprocess.PIPE)
        assert curl.stdout is not None
        closed = False
        with suppress(TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(seconds):
                while (block := await curl.stdout.readuntil(b"\n\n")) and not closed:
                    closed = self._take(block.decode())
        with suppress(ProcessLookupError):
            curl.kill()
        await curl.wait()
        return closed

    def _take(self, block: str) -> bool:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "id" in fields:
            self.ids.append(int(fields["id"]))
            assert json.loads(fields["data"])["id"] == self.ids[-1]
        return fields.get("event") == "closed"


async def cut_listeners(fanout: Deployment) -> None:
    """Ends the LISTEN connection again and again."""
    while True:
        await asyncio.sleep(0.4)
        await fanout.pool.execute(f"select pg_terminate_backend(pid) from ({LISTENERS}) listening")
