"""One benchmark's Fanout: settings, client, and real worker processes."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from fanout import FanoutClient, Settings
from fanout.client import BatchHandle, Items, Status
from fanout.store import Pool

ROOT = Path(__file__).parents[1]
READY_SECONDS = 60.0
WARM_ITEMS = 200
PR_SET_PDEATHSIG = 1


class BenchmarkFailed(Exception):
    """There is nothing to measure: a worker did not start, or a batch did not end as completed."""


def say(text: str) -> None:
    """One line of progress; stdout belongs to the results."""
    print(text, file=sys.stderr, flush=True)


@dataclass(eq=False)
class WorkerProcess:
    """A real `worker.py` in a process group of its own."""

    process: subprocess.Popen[bytes]
    identity: str
    started_at: float
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL for it and all its children, and waits for its end."""
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Rig:
    """A deployment of its own on the shared stack; made by `open_rig`."""

    settings: Settings
    environment: dict[str, str]
    folder: Path
    client: FanoutClient
    pool: Pool
    workers: list[WorkerProcess] = field(default_factory=list)

    def spawn(self, *options: str) -> WorkerProcess:
        """Starts a worker and waits for nothing."""
        identity = f"bench-{uuid4().hex[:8]}"
        path = self.folder / "worker.log"
        command = [sys.executable, "worker.py", "--handlers", "benchmarks.handlers", "--identity", identity, *options]
        started_at = time.monotonic()
        with path.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_tied_to_this_process(),
            )
        worker = WorkerProcess(process, identity, started_at, path)
        self.workers.append(worker)
        return worker

    async def start_worker(self, *options: str) -> WorkerProcess:
        """Starts a worker and warms it up: it has run a small batch when this returns."""
        worker = self.spawn(*options)
        give_up = time.monotonic() + READY_SECONDS
        while worker.identity not in {row.facts.identity for row in await self.client.workers()}:
            if worker.process.poll() is not None or time.monotonic() > give_up:
                raise BenchmarkFailed(f"the worker did not start:\n{worker.log.read_text()}")
            await asyncio.sleep(0.02)
        say(f"worker {worker.identity} runs as process {worker.pid}")
        await self.finish(await self.client.submit("bench.noop", [None] * WARM_ITEMS))
        return worker

    async def finish(self, batch: BatchHandle, within_seconds: float = 900) -> Status:
        """The batch's status once it is closed; raises BenchmarkFailed unless every item completed."""
        status = await asyncio.wait_for(batch.wait(), within_seconds)
        if status.completed != status.total:
            raise BenchmarkFailed(f"batch {batch.batch_id} ended as {status.status}: {status.model_dump_json()}")
        return status

    async def run(self, handler: str, items: Items) -> tuple[UUID, float]:
        """Submits, waits for the close, and answers the seconds that both took together."""
        began = time.monotonic()
        batch = await self.client.submit(handler, items)
        await self.finish(batch)
        return batch.batch_id, time.monotonic() - began

    async def settled(self, batch_id: UUID) -> int:
        """How many items of a batch are settled now, by its counters."""
        row = await self.client.store.read_batch(batch_id)
        assert row is not None
        return row.total - row.open

    def kill_workers(self) -> None:
        """Ends every worker that was started here."""
        for worker in self.workers:
            worker.kill()


def _tied_to_this_process() -> Callable[[], None]:
    """The kernel ends a worker whose benchmark was killed: else it would keep the stack up for ever."""
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
