"""Servers of one test's own, which it may kill, stop and start again on the same port and the same data."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import asyncpg

from fanout import Settings
from fanout.devstack import Stack
from fanout.devstack.children import Child
from fanout.devstack.locks import try_lock
from fanout.devstack.postgres import Postgres
from fanout.devstack.programs import find_programs
from fanout.devstack.temporal import Temporal
from tests.conftest import SHORT_HEARTBEAT_SECONDS, make_template
from tests.faults.proxy import Line
from tests.support import Deployment, deployment, eventually

STOP_SECONDS = 30.0
Kind = TypeVar("Kind", Postgres, Temporal)


class OwnServer(Generic[Kind]):
    """One server on a folder; `make` makes its description from the descriptor that all its processes inherit."""

    def __init__(self, home: Path, make: Callable[[int], Kind]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._make: Callable[[int], Kind] = make
        self._lock = home / "server.lock"
        self._ports: list[int] = []
        self._server: Kind | None = None
        self._child: Child | None = None

    @property
    def server(self) -> Kind:
        """Its description: addresses, and what reaches it."""
        assert self._server is not None, "not started yet"
        return self._server

    async def start(self) -> None:
        """Starts it on its port and its data; returns once it answers.

        Once more where it ended at once: a Temporal server chooses inner ports of its own, and may lose one to another.
        """
        await self._launch()
        if self._child is not None and self._child.code is not None:
            await self._ended(self._child)
            await self._launch()
        await eventually(self._answers)

    async def _launch(self) -> None:
        lock = try_lock(self._lock)
        assert lock is not None, "a process of its last run is left"
        server = self._make(lock)
        self._server, self._child = server, server.start(self._ports)
        os.close(lock)
        assert self._ports in ([], server.ports), "another took its port meanwhile"
        self._ports = server.ports
        await eventually(self._has_come_or_gone)

    async def _has_come_or_gone(self) -> bool:
        return self._child is None or self._child.code is not None or await self._answers()

    async def stop(self) -> None:
        """Ends it as an operator would: PostgreSQL ends its sessions and shuts down."""
        if self._child is not None:
            self._child.ask_to_stop()
            await self._ended(self._child)

    async def kill(self) -> None:
        """SIGKILL to every process of it, all at once; nothing is flushed."""
        if self._child is not None:
            kill_family(self._child.pid)
            await self._ended(self._child)

    async def _ended(self, child: Child) -> None:
        await asyncio.to_thread(child.wait, STOP_SECONDS)
        # Its number may be another process's from now on.
        self._child = None
        await eventually(self._is_gone)

    async def _answers(self) -> bool:
        assert self._child is not None
        assert self._child.code is None, self._child.words
        return await asyncio.to_thread(self.server.answers, self._child)

    async def _is_gone(self) -> bool:
        """Every process of a server inherits the lock: it is free once the last of them has ended."""
        if (lock := try_lock(self._lock)) is None:
            return False
        os.close(lock)
        return True


def kill_family(pid: int) -> None:
    """SIGKILL to a process and to all that it started."""
    with suppress(ProcessLookupError):
        # So that it starts none while we look for them.
        os.kill(pid, signal.SIGSTOP)
        for member in (*children_of(pid), pid):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)


def children_of(parent: int) -> list[int]:
    """The processes that this one started and that live."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # After the name in brackets, which may hold anything: state, parent.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(folder.name))
    return found


@asynccontextmanager
async def own_postgres(home: Path) -> AsyncIterator[OwnServer[Postgres]]:
    """A PostgreSQL with an empty database on `home`, for the block."""
    programs = find_programs(Settings()).postgres_bin
    server = OwnServer(home, lambda inherited: Postgres(home, programs, inherited))
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def own_temporal(home: Path) -> AsyncIterator[OwnServer[Temporal]]:
    """A Temporal server with an empty store on `home`, for the block."""
    program = find_programs(Settings()).temporal
    server = OwnServer(home, lambda inherited: Temporal(home, program, inherited))
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def own_servers(folder: Path) -> AsyncIterator[tuple[OwnServer[Postgres], OwnServer[Temporal], Stack]]:
    """Both, and the stack that they make up."""
    async with own_temporal(folder / "temporal") as temporal, own_postgres(folder / "postgres") as postgres:
        addresses = (postgres.server.url, temporal.server.address, temporal.server.ui_url)
        yield postgres, temporal, Stack(*addresses, home=folder, supervisor_pid=os.getpid())


@asynccontextmanager
async def on_own_postgres(
    stack: Stack, folder: Path, **settings: object
) -> AsyncIterator[tuple[Deployment, OwnServer[Postgres]]]:
    """A deployment on a PostgreSQL of its own and the Temporal of `stack`."""
    async with (
        own_postgres(folder / "own") as postgres,
        deployed(replace(stack, database_url=postgres.server.url), folder, **settings) as fanout,
    ):
        yield fanout, postgres


@asynccontextmanager
async def on_own_temporal(
    stack: Stack, folder: Path, **settings: object
) -> AsyncIterator[tuple[Deployment, OwnServer[Temporal]]]:
    """A deployment on a Temporal of its own and the PostgreSQL of `stack`."""
    async with (
        own_temporal(folder / "own") as temporal,
        deployed(replace(stack, temporal_address=temporal.server.address), folder, **settings) as fanout,
    ):
        yield fanout, temporal


@asynccontextmanager
async def deployed(stack: Stack, folder: Path, **settings: object) -> AsyncIterator[Deployment]:
    """A deployment with a short heartbeat timeout, on servers that have none yet."""
    template = await asyncio.to_thread(lambda: asyncio.run(make_template(stack)))
    async with deployment(
        stack, template, folder, **{"heartbeat_seconds": SHORT_HEARTBEAT_SECONDS, **settings}
    ) as made:
        yield made


def line_to(url_or_address: str) -> Line:
    """A line to the server of a database URL or of a `host:port`."""
    host, _, port = url_or_address.rpartition("@")[2].partition("/")[0].rpartition(":")
    return Line(host, int(port))


def postgres_line(fanout: Deployment) -> Line:
    """A line to the deployment's PostgreSQL."""
    return line_to(fanout.servers.database_url)


def temporal_line(fanout: Deployment) -> Line:
    """A line to the deployment's Temporal."""
    return line_to(fanout.servers.temporal["target_host"])


def through(fanout: Deployment, *, postgres: Line | None = None, temporal: Line | None = None) -> dict[str, str]:
    """The settings of a worker, or of any process, that reaches these servers by these lines alone."""
    chosen = {}
    if postgres is not None:
        before, at, after = fanout.servers.database_url.rpartition("@")
        chosen["FANOUT_DATABASE_URL"] = f"{before}{at}{postgres.address}/{after.partition('/')[2]}"
    if temporal is not None:
        chosen["TEMPORAL_ADDRESS"] = temporal.address
    return chosen


async def set_read_only(url: str, read_only: bool) -> None:
    """Makes every session of that server refuse writes, also those that are open; or lets them write again."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set default_transaction_read_only = off")
        await connection.execute(f"alter system set default_transaction_read_only = {'on' if read_only else 'off'}")
        await connection.execute("select pg_reload_conf()")
    finally:
        await connection.close()
