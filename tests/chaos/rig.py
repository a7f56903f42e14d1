"""What a run is done to: a pair of servers, and two workers behind lines, with a supervisor that restarts them."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fanout import Settings
from fanout.devstack import Stack
from fanout.devstack.postgres import Postgres
from fanout.devstack.programs import find_programs
from fanout.devstack.temporal import Temporal
from tests.chaos.clocks import Clock, ClockedPostgres
from tests.faults.proxy import Line
from tests.faults.servers import OwnServer, deployed, postgres_line, temporal_line, through
from tests.forkserver import Forked, start_script
from tests.support import Deployment

WORKERS = 2
GRACE_SECONDS = 1
RESTART_SECONDS = 0.2


class Lane:
    """A PostgreSQL and a Temporal for one run after another; each run has a database and a namespace of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        programs = find_programs(Settings())
        self.folder = folder
        self.clock = Clock(folder / "clock")
        self.clock.step(0)
        self.temporal = OwnServer(
            folder / "temporal", lambda held: Temporal(folder / "temporal", programs.temporal, held)
        )
        self.postgres: OwnServer[Postgres] = OwnServer(
            folder / "postgres",
            lambda held: ClockedPostgres(folder / "postgres", programs.postgres_bin, held, self.clock),
        )

    @property
    def stack(self) -> Stack:
        """Their addresses."""
        temporal = self.temporal.server
        return Stack(self.postgres.server.url, temporal.address, temporal.ui_url, self.folder, os.getpid())

    async def start(self) -> None:
        """Starts both."""
        await self.temporal.start()
        await self.postgres.start()

    async def kill(self) -> None:
        """Ends both."""
        await self.postgres.kill()
        await self.temporal.kill()


@dataclass
class Post:
    """The place of one worker: its lines, its clock, and the process that works there now."""

    name: str
    fanout: Deployment
    postgres: Line
    temporal: Line
    clock: Clock
    points: str
    clocked: bool
    process: Forked | subprocess.Popen[bytes] | None = None
    ends: Counter[int] = field(default_factory=Counter)
    leaving: bool = False

    @property
    def log(self) -> Path:
        """What its workers wrote, one after another."""
        return self.fanout.folder / f"{self.name}.log"

    def start(self) -> None:
        """Starts a worker; the fault points are armed in the first one only."""
        environment = {
            **self.fanout.environment,
            **through(self.fanout, postgres=self.postgres, temporal=self.temporal),
            **(self.clock.environment if self.clocked else {}),
            "FANOUT_TEST_LEDGER": str(self.fanout.folder),
            "FANOUT_FAULT_POINTS": self.points if not self.ends else "",
        }
        options = ("--handlers", "tests.handlers.chaotic", "--identity", self.name, "--concurrency", "8")
        arguments = ("worker.py", *options, "--grace", str(GRACE_SECONDS))
        with self.log.open("ab") as stream, open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), stream.fileno(), stream.fileno())
            self.process = start_script(arguments, environment, streams)

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal to the worker; False if none is there."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    async def supervise(self) -> None:
        """Starts workers, one after another, for ever."""
        while True:
            self.start()
            assert self.process is not None
            while (code := self.process.poll()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self.ends[code] += 1
            await asyncio.sleep(RESTART_SECONDS)

    def end(self) -> None:
        """SIGKILL to the worker and its children."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Rig:
    """One run's deployment with its workers."""

    lane: Lane
    fanout: Deployment
    posts: list[Post]
    steps: int = 0


@asynccontextmanager
async def rigged(lane: Lane, folder: Path, points: list[str], clocked: bool) -> AsyncIterator[Rig]:
    """A deployment on the lane's servers and its supervised workers, with `points` armed in the first of each.

    Where `clocked`, their wall clocks can be stepped.
    """
    lane.clock.step(0)
    async with deployed(lane.stack, folder) as fanout, AsyncExitStack() as held:
        posts: list[Post] = []
        for number in range(WORKERS):
            postgres = await held.enter_async_context(postgres_line(fanout))
            temporal = await held.enter_async_context(temporal_line(fanout))
            clock = Clock(folder / f"clock-{number}")
            clock.step(0)
            posts.append(Post(f"worker-{number}", fanout, postgres, temporal, clock, points[number], clocked))
        supervising = [asyncio.create_task(post.supervise()) for post in posts]
        try:
            yield Rig(lane, fanout, posts)
        finally:
            for task in supervising:
                task.cancel()
            await asyncio.gather(*supervising, return_exceptions=True)
            for post in posts:
                post.end()
