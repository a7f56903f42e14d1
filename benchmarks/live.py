"""`live`: what readers and an open dashboard cost the work, how soon readers know, and what each of them takes."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from uuid import UUID

from playwright.async_api import Page

from benchmarks.browser import browsing
from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import ROOT, BenchmarkFailed, Rig, say
from fanout.devstack.ports import free_ports
from fanout.live import Notifier
from fanout.store import Ticks

HOST = "127.0.0.1"
ITEMS = 20_000
PAIRS = 7
READERS = 50
CROWD = 500
CHANGES = 1_000
MOST_BYTES = 100_000
LONGEST_PAUSE_SECONDS = 0.1
READY_SECONDS = 60.0
PROMISE = Limit(0.9, at_least=True)
LISTENERS = (
    "select count(*) from pg_stat_activity where application_name = 'fanout listen' and datname = current_database()"
)
EVENT = "jsonb_build_object('kind', 'bench', 'class', 'batch', 'data', $2::jsonb)"
EMIT = f"select fanout.emit($1, jsonb_build_array({EVENT}))"


def cases(options: Options) -> list[Case]:
    """One line."""
    items, pairs = options.items or ITEMS, options.pairs or PAIRS
    return [Case(f"live {items:,}, {READERS} readers", partial(measure, items=items, pairs=pairs))]


async def measure(rig: Rig, items: int, pairs: int) -> Measured:
    """Alternates between a batch that nobody watches and one that readers and a dashboard see to its close."""
    await rig.start_worker()
    alone, watched = [], []
    async with serving(rig) as server:
        async with browsing() as page:
            for pair in range(pairs):
                if pair % 2 == 0:
                    alone.append((await rig.run("bench.noop", (None for _ in range(items))))[1])
                watched.append(await run_watched(rig, server, page, items))
                if pair % 2 == 1:
                    alone.append((await rig.run("bench.noop", (None for _ in range(items))))[1])
                say(f"pair {pair + 1} of {pairs}: alone {alone[-1]:.2f} s, watched {watched[-1]:.2f} s")
        delays = await measure_delays(rig, server)
        per_reader, listeners = await measure_crowd(rig, server)
    return Measured(
        name="live",
        compares=f"seconds of a batch that nobody watches, over those of one with {READERS} readers and the dashboard",
        items=items,
        concurrency=rig.settings.concurrency,
        ratios=[one / other for one, other in zip(alone, watched, strict=True)],
        sides={"alone": alone, "watched": watched},
        limit=PROMISE,
        holds=per_reader < MOST_BYTES and listeners == 1,
        details={
            "change_to_reader_ms": {
                "changes": len(delays),
                "median": round(1_000 * median(delays)),
                "p99": round(1_000 * quantiles(delays, n=100)[98]),
            },
            "readers_at_once": CROWD,
            "bytes_per_reader": per_reader,
            "listen_connections": listeners,
        },
    )


async def run_watched(rig: Rig, server: "Server", page: Page, items: int) -> float:
    """Seconds from submit to close with all readers connected and the page open; they must see the close soon after."""
    address = f"http://{HOST}:{server.port}/#/"
    await page.goto(address)
    await page.locator("#connection", has_text="Live").wait_for()
    began = time.monotonic()
    batch = await rig.client.submit("bench.noop", (None for _ in range(items)))
    async with AsyncExitStack() as held:
        entering = [held.enter_async_context(reading(server, batch.batch_id)) for _ in range(READERS)]
        readers = await asyncio.gather(*entering)
        await page.goto(f"{address}batches/{batch.batch_id}")
        await rig.finish(batch)
        seconds = time.monotonic() - began
        await asyncio.wait_for(asyncio.gather(*(reader.closed.wait() for reader in readers)), READY_SECONDS)
        await page.locator(".badge[data-state=completed]").first.wait_for()
    # A page that shows the end would go on asking while the next batch runs alone.
    await page.goto("about:blank")
    return seconds


async def measure_delays(rig: Rig, server: "Server") -> list[float]:
    """Seconds from each change to its reader; changes come at random moments and are told as a worker tells them."""
    batch = await rig.client.submit("bench.unknown", [None], allow_unknown=True)
    notifier = Notifier(Ticks(rig.pool))
    async with reading(server, batch.batch_id) as reader:
        for _ in range(CHANGES):
            await rig.pool.execute(EMIT, batch.batch_id, json.dumps({"at": time.monotonic()}))
            notifier.note(batch.batch_id)
            await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))
        await batch.cancel()
        await asyncio.wait_for(reader.closed.wait(), READY_SECONDS)
    await notifier.close()
    return reader.delays


async def measure_crowd(rig: Rig, server: "Server") -> tuple[int, int]:
    """Bytes of the server's memory for each of many readers, and how many connections LISTEN for all of them."""
    batch = await rig.client.submit("bench.unknown", [None], allow_unknown=True)
    async with AsyncExitStack() as held:
        await held.enter_async_context(reading(server, batch.batch_id))
        before = server.resident_bytes()
        entering = [held.enter_async_context(reading(server, batch.batch_id)) for _ in range(CROWD)]
        await asyncio.gather(*entering)
        bytes_each = (server.resident_bytes() - before) // CROWD
        listeners = await rig.pool.fetchval(LISTENERS)
    await batch.cancel()
    return bytes_each, int(listeners)


@dataclass(frozen=True)
class Server:
    """The web server, a process of its own."""

    process: subprocess.Popen[bytes]
    port: int

    def resident_bytes(self) -> int:
        """Its memory now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(1_024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@asynccontextmanager
async def serving(rig: Rig) -> AsyncIterator[Server]:
    """A server that answers, for the block."""
    server = _spawn(rig)
    try:
        give_up = time.monotonic() + READY_SECONDS
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, server.port)
                writer.close()
                break
            if server.process.poll() is not None or time.monotonic() > give_up:
                raise BenchmarkFailed("the web server did not start")
            await asyncio.sleep(0.05)
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def _spawn(rig: Rig) -> Server:
    [port] = free_ports([], 1)
    command = [sys.executable, "starter.py", "serve", "--port", str(port)]
    return Server(subprocess.Popen(command, cwd=ROOT, env=rig.environment, stdin=subprocess.DEVNULL), port)


@dataclass
class Reader:
    """What one connection brought."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    delays: list[float] = field(default_factory=list)

    async def read(self, server: Server, batch_id: UUID) -> None:
        """Reads until the server ends the stream."""
        lines, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(f"GET /batches/{batch_id}/events HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode())
        try:
            kind = b""
            while line := await lines.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip()
                elif line.startswith(b"data: "):
                    self._take(kind, line[6:])
        finally:
            writer.close()

    def _take(self, kind: bytes, data: bytes) -> None:
        self.began.set()
        if kind == b"closed":
            self.closed.set()
        elif kind == b"event" and b'"bench"' in data:
            self.delays.append(time.monotonic() - json.loads(data)["data"]["at"])


@asynccontextmanager
async def reading(server: Server, batch_id: UUID) -> AsyncIterator[Reader]:
    """A reader beside the block, once it has got its snapshot."""
    reader = Reader()
    task = asyncio.create_task(reader.read(server, batch_id))
    try:
        await asyncio.wait_for(reader.began.wait(), READY_SECONDS)
        yield reader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
