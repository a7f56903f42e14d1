"""The benchmarks' own stack, and on it a database and a namespace for each of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import asyncpg
from google.protobuf.duration_pb2 import Duration
from pydantic import SecretStr
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from benchmarks.rig import ROOT, Rig
from fanout import FanoutClient, Settings
from fanout.client import register_search_attributes
from fanout.devstack import Stack, use
from fanout.devstack.stack import without_servers
from fanout.servers import Servers
from fanout.store import connect_pool, migrate

HOME = ROOT / ".fanout" / "bench"
PROGRAMS = ("FANOUT_POSTGRES_BIN", "FANOUT_TEMPORAL_BIN")
PREFIX = "bench_"
NAMESPACE_SECONDS = 30.0


def forget_settings() -> None:
    """Takes every setting of Fanout, PostgreSQL and Temporal out of this process and so out of its children.

    What is left names the servers' programs: a benchmark runs with defaults, on no server but its own.
    """
    kept = {
        name: value
        for name, value in without_servers(os.environ).items()
        if not name.startswith("FANOUT_") or name in PROGRAMS
    }
    os.environ.clear()
    os.environ.update({**kept, "FANOUT_HOME": str(HOME)})


@contextmanager
def own_stack() -> Iterator[Stack]:
    """The stack in `.fanout/bench`."""
    with use(Settings.from_environment()) as stack:
        yield stack


@asynccontextmanager
async def open_rig(stack: Stack, folder: Path = HOME) -> AsyncIterator[Rig]:
    """A fresh database and namespace with a client; at the end all workers are killed and the database is dropped."""
    await _drop_leftovers(stack)
    url = await _create_database(stack)
    namespace = await _create_namespace(stack.temporal_address)
    settings = Settings.from_environment().with_values({"database_url": SecretStr(url)})
    servers = Servers(url, "the benchmark", {"target_host": stack.temporal_address, "namespace": namespace}, "it too")
    environment = {
        **stack.environment(dict(os.environ)),
        "FANOUT_DATABASE_URL": url,
        "TEMPORAL_NAMESPACE": namespace,
    }
    pool = await connect_pool(url, purpose="benchmark", size=4)
    try:
        await migrate(pool)
        async with FanoutClient.connect(settings, servers=servers) as client:
            rig = Rig(settings, environment, folder, client, pool)
            try:
                yield rig
            finally:
                rig.kill_workers()
    finally:
        pool.terminate()
        await _drop_leftovers(stack)


async def _create_database(stack: Stack) -> str:
    name = f"{PREFIX}{uuid4().hex[:16]}"
    connection = await asyncpg.connect(stack.database_url)
    try:
        await connection.execute(f'create database "{name}"')
    finally:
        await connection.close()
    return f"{stack.database_url.rpartition('/')[0]}/{name}?sslmode=disable"


async def _drop_leftovers(stack: Stack) -> None:
    """Drops the databases of benchmarks that nobody is connected to: this run's, and those of killed ones."""
    connection = await asyncpg.connect(stack.database_url)
    try:
        for row in await connection.fetch("select datname from pg_database where starts_with(datname, $1)", PREFIX):
            with suppress(asyncpg.ObjectInUseError, asyncpg.InvalidCatalogNameError):
                await connection.execute(f'drop database "{row["datname"]}"')
    finally:
        await connection.close()


async def _create_namespace(address: str) -> str:
    """A new namespace with Fanout's search attributes."""
    name = f"bench-{uuid4().hex[:16]}"
    client = await Client.connect(address, namespace=name)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86_400))
    )
    async with asyncio.timeout(NAMESPACE_SECONDS):
        while True:
            try:
                await register_search_attributes(client)
                return name
            except RPCError as error:
                # The server needs a moment to notice its own namespace.
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
            await asyncio.sleep(0.02)
