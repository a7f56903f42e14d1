"""Restarts a worker that dies, as a deployment's supervisor would."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.ledger import start_worker
from tests.support import Deployment, WorkerProcess


@dataclass
class Supervisor:
    """One worker, always up again; `deaths` are its exit codes."""

    fanout: Deployment
    options: tuple[str, ...]
    handlers: str
    worker: WorkerProcess
    deaths: list[int] = field(default_factory=list)

    async def watch(self) -> None:
        while True:
            code = self.worker.process.poll()
            if code is not None:
                self.deaths.append(code)
                self.worker = await start_worker(self.fanout, *self.options, handlers=self.handlers)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def supervised(
    fanout: Deployment, *options: str, handlers: str = "tests.handlers.cases"
) -> AsyncIterator[Supervisor]:
    worker = await start_worker(fanout, *options, handlers=handlers)
    supervisor = Supervisor(fanout, options, handlers, worker)
    watching = asyncio.create_task(supervisor.watch())
    try:
        yield supervisor
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
