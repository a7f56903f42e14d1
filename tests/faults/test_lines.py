"""The tools of the outage tests do what their names say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from fanout.devstack import Stack
from tests.faults.proxy import Line
from tests.faults.servers import own_servers
from tests.support import create_namespace, eventually


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[Line, list[bytes]]]:
    """A server that says what it hears, behind a line; what it heard."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                heard.append(data)
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with Line(*server.sockets[0].getsockname()) as line:
            yield line, heard
    finally:
        server.close()


async def say(line: Line, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
    writer.write(text)
    return reader, writer


async def test_a_cut_line_resets_and_refuses_until_it_is_restored() -> None:
    async with echo() as (line, _):
        reader, writer = await say(line, b"one")
        assert await reader.read(10) == b"one"
        line.cut()
        with pytest.raises(ConnectionResetError):
            await reader.read(10)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await say(line, b"two")
        line.restore()
        reader, writer = await say(line, b"three")
        assert await reader.read(10) == b"three"
        writer.close()
        await eventually(lambda: none_left(line))


async def none_left(line: Line) -> bool:
    return line.connections == 0


async def test_a_stalled_line_passes_everything_on_later() -> None:
    async with echo() as (line, heard):
        reader, writer = await say(line, b"a")
        assert await reader.read(10) == b"a"
        line.stall()
        writer.write(b"b")
        fresh, other = await say(line, b"c")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(10), 0.2)
        assert heard == [b"a"]
        line.restore()
        assert (await reader.read(10), await fresh.read(10)) == (b"b", b"c")
        writer.close()
        other.close()


async def test_dropped_replies_are_lost_after_the_server_has_heard() -> None:
    async with echo() as (line, heard):
        reader, writer = await say(line, b"a")
        assert await reader.read(10) == b"a"
        line.drop_replies()
        writer.write(b"b")
        await eventually(lambda: has(heard, b"b"))
        await eventually(lambda: robbed(line))
        line.restore()
        with pytest.raises(ConnectionResetError):
            await reader.read(10)
        writer.close()


async def robbed(line: Line) -> bool:
    """Whether a reply has been dropped."""
    return any(each.robbed for each in line._connections)


async def has(heard: list[bytes], text: bytes) -> bool:
    return text in heard


async def test_a_line_carries_much_on_many_connections_and_leaves_none() -> None:
    async with echo() as (line, _):
        blob = b"x" * 2_000_000

        async def talk() -> int:
            reader, writer = await say(line, blob)
            got = len(await reader.readexactly(len(blob)))
            writer.close()
            return got

        assert set(await asyncio.gather(*(talk() for _ in range(10)))) == {len(blob)}
        many = [await say(line, b"?") for _ in range(300)]
        await eventually(lambda: all_open(line, 300))
        line.reset_all()
        for reader, writer in many:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(2)
            writer.close()
        await eventually(lambda: none_left(line))


async def all_open(line: Line, count: int) -> bool:
    return line.connections == count


async def test_a_killed_server_comes_back_on_its_port_with_its_data(tmp_path: Path) -> None:
    async with own_servers(tmp_path) as (postgres, temporal, stack):
        connection = await asyncpg.connect(stack.database_url)
        await connection.execute("create table kept as select 42 as value")
        namespace = await create_namespace(stack.temporal_address)
        await asyncio.gather(postgres.kill(), temporal.kill())
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("select 1")
        with pytest.raises(ConnectionRefusedError):
            await asyncpg.connect(stack.database_url)
        await postgres.start()
        await temporal.start()
        connection = await asyncpg.connect(stack.database_url)
        assert await connection.fetchval("select value from kept") == 42
        await connection.close()
        assert await known(stack, namespace)
        await postgres.stop()
        await postgres.start()
        assert postgres.server.url == stack.database_url


async def known(stack: Stack, namespace: str) -> bool:
    client = await Client.connect(stack.temporal_address, namespace=namespace)
    await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
    return True
