"""What tests share: polling, real worker processes, and one deployment a test."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import asyncpg
from google.protobuf.duration_pb2 import Duration
from pydantic import SecretStr
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fanout import FanoutClient, Settings
from fanout.client import SEARCH_ATTRIBUTES
from fanout.devstack import Stack
from fanout.servers import Servers
from fanout.store import Pool, connect_pool
from tests.forkserver import Forked, run_script, start_script

ROOT = Path(__file__).parents[1]
SHORTEST_PAUSE = 0.02
# Many tests wait at once, and each look is a query.
LONGEST_PAUSE = 0.15
Found = TypeVar("Found")


async def eventually(check: Callable[[], Awaitable[Found]], timeout: float = 60.0) -> Found:
    """The first truthy answer of `check`; an assertion error with the last answer after `timeout` seconds."""
    end = time.monotonic() + timeout
    pause = SHORTEST_PAUSE
    while not (found := await check()):
        assert time.monotonic() < end, f"{check} still answered {found!r} after {timeout} s"
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 1.25)
    return found


@dataclass(eq=False)
class WorkerProcess:
    """A real `worker.py`, in a process group of its own so that nothing of it outlives the test."""

    process: Forked | subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


@dataclass
class Deployment:
    """One test's Fanout: a database and a namespace of its own on the shared stack, a client, and its workers."""

    settings: Settings
    servers: Servers
    environment: dict[str, str]
    folder: Path
    client: FanoutClient
    pool: Pool
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def temporal(self) -> Client:
        """The Temporal client, in this test's namespace."""
        return self.client.temporal

    async def start_worker(
        self, *options: str, handlers: str = "tests.handlers.basic", **settings: str
    ) -> WorkerProcess:
        """Starts a worker and waits until its row is there; `settings` are environment variables."""
        identity = f"worker-{uuid4().hex[:8]}"
        path = self.folder / f"{identity}.log"
        worker = _spawn(
            path, {**self.environment, **settings}, "--handlers", handlers, "--identity", identity, *options
        )
        self.workers.append(worker)

        async def ready() -> bool:
            code = worker.process.poll()
            # Who was there was ready, also one that a fault point has ended since, or whose lease is stale by now.
            rows = await self.client.store.list_workers(timedelta(days=1))
            there = identity in {row.facts.identity for row in rows}
            assert there or code is None, path.read_text()
            return there

        await eventually(ready)
        return worker

    def run(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `starter.py` to its end, with `text` on its standard input."""
        return run_script(("starter.py", *arguments), self.environment, text)

    async def statuses(self, batch_id: UUID) -> dict[str, int]:
        """How many rows stand in each state, counted from the rows."""
        rows = await self.pool.fetch(
            "select status, count(*) from fanout.results where batch_id = $1 group by status", batch_id
        )
        return {row["status"]: row["count"] for row in rows}


def _spawn(log: Path, environment: dict[str, str], *arguments: str) -> WorkerProcess:
    with log.open("wb") as stream, open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), stream.fileno(), stream.fileno())
        return WorkerProcess(start_script(("worker.py", *arguments), environment, streams), log)


async def create_database(stack: Stack, template: str) -> str:
    """A new database made from `template`; answers its URL."""
    name = f"test_{uuid4().hex[:16]}"
    connection = await asyncpg.connect(stack.database_url)
    try:
        # Copied as files: without fsync a third of the work of writing it all to the log.
        await connection.execute(f'create database "{name}" template "{template}" strategy file_copy')
    finally:
        await connection.close()
    return f"{stack.database_url.rpartition('/')[0]}/{name}"


async def create_namespace(address: str) -> str:
    """A new namespace with Fanout's search attributes."""
    name = f"test-{uuid4().hex[:16]}"
    client = await Client.connect(address)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86_400))
    )

    async def registered() -> bool:
        try:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=name, search_attributes=SEARCH_ATTRIBUTES)
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    await eventually(registered)
    return name


@asynccontextmanager
async def deployment(stack: Stack, template: str, folder: Path, **settings: object) -> AsyncIterator[Deployment]:
    """Makes a deployment and takes it down again, its workers with it."""
    url = await create_database(stack, template)
    namespace = await create_namespace(stack.temporal_address)
    chosen = Settings.from_environment({}).with_values({"database_url": SecretStr(url), **settings})
    servers = Servers(url, "the test", {"target_host": stack.temporal_address, "namespace": namespace}, "the test")
    environment = {
        **stack.environment(dict(os.environ)),
        "FANOUT_DATABASE_URL": url,
        "TEMPORAL_NAMESPACE": namespace,
        "FANOUT_HEARTBEAT_SECONDS": str(chosen.heartbeat_seconds),
    }
    pool = await connect_pool(url, purpose="test", size=4)
    try:
        async with FanoutClient.connect(chosen, servers=servers) as client:
            made = Deployment(chosen, servers, environment, folder, client, pool)
            try:
                yield made
            finally:
                for worker in made.workers:
                    worker.kill()
                # Namespaces stay for as long as the stack: without a worker nothing is to tick in them.
                with suppress(RPCError):
                    handle = client.temporal.get_schedule_handle(chosen.names.sweeper)
                    await handle.delete(rpc_timeout=timedelta(seconds=5))
    finally:
        await pool.close()
