"""`starter.py serve` as a real process, and what it says when a server is away."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from fanout import FanoutClient, Settings
from fanout.cli.app import run
from fanout.errors import InvalidRequest
from fanout.http import app
from fanout.http.serving import listen
from fanout.metrics.endpoint import REQUEST_SECONDS
from tests.faults.proxy import Line
from tests.http.support import JSON_LINES, caller, problem
from tests.support import ROOT, Deployment, eventually

HALF = b"POST /batches?handler=test.echo&key=k&allow_unknown=true HTTP/1.1\r\nHost: localhost\r\n"
HALF += b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1\n2\n\r\n"
REST = b"4\r\n3\n4\n\r\n0\r\n\r\n"
IN_TRANSACTION = """select count(*) from pg_stat_activity
    where datname = current_database() and application_name = 'fanout client' and state = 'idle in transaction'"""


@dataclass
class Served:
    """A server process, where it listens, and what it has logged."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path


def start(log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "starter.py", "serve", "--port", "0", "--json", "--log-level", "info"]
    with log.open("wb") as stream:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stream)


@asynccontextmanager
async def served(fanout: Deployment, **settings: str) -> AsyncIterator[Served]:
    log = fanout.folder / "serve.log"
    process = start(log, {**fanout.environment, **settings})
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, log.read_text()
        yield Served(process, json.loads(line)["url"], log)
    finally:
        process.kill()
        process.communicate()


async def half_sent(fanout: Deployment, server: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A submit that has stored its first items and waits for more."""
    place = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(HALF)
    await writer.drain()

    async def stores() -> bool:
        return bool(await fanout.pool.fetchval(IN_TRANSACTION))

    await eventually(stores)
    return reader, writer


async def test_a_server_stores_whole_submits_and_ends_after_its_last_answer(fanout: Deployment) -> None:
    async with (
        served(fanout, FANOUT_HTTP_MAX_BODY_BYTES="20000") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as api,
    ):
        assert (await api.get("/ready")).json() == {"status": "ready"}

        _, writer = await half_sent(fanout, server)
        writer.transport.abort()

        async def rolled_back() -> bool:
            return not await fanout.pool.fetchval(IN_TRANSACTION)

        await eventually(rolled_back)
        assert await fanout.pool.fetchval("select count(*) from fanout.items") == 0
        assert await fanout.pool.fetchval("select count(*) from fanout.keys") == 0

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(60):
                yield b"1\n" * 50_000

        query = {"handler": "test.echo", "key": "k"}
        unknown = await api.post("/batches", params=query, content=endless(), headers=JSON_LINES)
        problem(unknown, 422, "unknown_handler")
        query["allow_unknown"] = "true"
        refused = await api.post("/batches", params=query, content=endless(), headers=JSON_LINES)
        assert problem(refused, 413, "body_too_large")["limit"] == 20_000

        reader, writer = await half_sent(fanout, server)
        server.process.send_signal(signal.SIGTERM)

        async def refuses() -> bool:
            try:
                await api.get("/health")
            except httpx.TransportError:
                return True
            return False

        await eventually(refuses)
        writer.write(REST)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 201"), answer
        writer.close()
        assert await asyncio.to_thread(server.process.wait, 60) == 0, server.log.read_text()
    logged = server.log.read_text()
    assert '"GET /ready HTTP/1.1" 200' in logged
    assert "Traceback" not in logged
    assert await fanout.pool.fetchval("select total from fanout.batches") == 4


async def test_a_signal_while_it_starts_is_a_good_end_too(fanout: Deployment) -> None:
    """Sent once it has named its servers, before it answers."""
    log = fanout.folder / "early.log"
    process = start(log, fanout.environment)

    async def connects() -> bool:
        return "Temporal " in log.read_text()

    await eventually(connects)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 60) == 0, log.read_text()
    process.communicate()


async def test_a_signal_after_the_first_line_is_a_good_end_and_one_that_stalls_is_told(fanout: Deployment) -> None:
    async with served(fanout) as server:
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, 60) == 0, server.log.read_text()
    async with served(fanout, FANOUT_GRACE_SECONDS="1") as server:
        reader, writer = await half_sent(fanout, server)
        server.process.send_signal(signal.SIGTERM)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503"), answer
        assert b"retry-after: 5" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "shutting_down"
        writer.close()
        assert await asyncio.to_thread(server.process.wait, 60) == 0, server.log.read_text()
    assert "Traceback" not in server.log.read_text()
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


def test_a_port_that_is_taken_and_a_host_that_is_open_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FANOUT_API_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, named in (
            (["--port", port], f"port {port} on 127.0.0.1"),
            (["--host", "0.0.0.0", "--port", "0"], "FANOUT_API_TOKEN"),
            (["--host", "", "--port", "0"], "no address"),
            (["--host", "no.such.host.invalid", "--port", "0"], "no.such.host.invalid"),
            (["--host", "no..host", "--port", "0"], "no address"),
            (["--port", "65536"], "65535"),
        ):
            assert run(["serve", *arguments]) == 2
            assert named in capsys.readouterr().err


def test_a_socket_from_elsewhere_listens_and_is_held_to_the_same_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FANOUT_API_TOKEN", raising=False)
    with socket.create_server(("0.0.0.0", 0)) as everywhere, socket.socket() as deaf, open("/dev/null") as file:
        for descriptor, named in (
            (everywhere.fileno(), "FANOUT_API_TOKEN"),
            (deaf.fileno(), "no socket that listens"),
            (file.fileno(), "no socket"),
            (9_999, "no socket"),
        ):
            assert run(["serve", "--fd", str(descriptor)]) == 2
            assert named in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FANOUT_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run(["serve", "--port", "0"]) == 3
    assert "FANOUT_DATABASE_URL" in capsys.readouterr().err


def test_with_a_token_every_address_may_be_served() -> None:
    settings = Settings.from_environment({"FANOUT_API_TOKEN": "x"})
    sockets = listen("0.0.0.0", 0, settings)
    with pytest.raises(InvalidRequest, match="cannot be had"):
        listen("0.0.0.0", sockets[0].getsockname()[1], settings)
    for each in sockets:
        each.close()


async def test_what_is_away_is_named_with_its_setting_until_it_is_back(fanout: Deployment) -> None:
    url = urlsplit(fanout.servers.database_url)
    assert url.hostname is not None
    assert url.port is not None
    host, port = str(fanout.servers.temporal["target_host"]).split(":")
    async with Line(url.hostname, url.port) as database, Line(host, int(port)) as temporal:
        through = replace(
            fanout.servers,
            database_url=fanout.servers.database_url.replace(f":{url.port}/", f":{database.port}/"),
            database_chosen_by="FANOUT_DATABASE_URL",
            temporal={**fanout.servers.temporal, "target_host": temporal.address},
        )
        async with FanoutClient.connect(fanout.settings, servers=through) as client, caller(app(client)) as api:

            async def ready() -> bool:
                return (await api.get("/ready")).status_code == 200

            assert await ready()
            database.cut()
            found = problem(await api.get("/ready"), 503, "not_ready")
            assert (found["setting"], "PostgreSQL does not answer" in found["detail"]) == ("FANOUT_DATABASE_URL", True)
            assert str(database.port) not in found["detail"]
            away = await api.get("/batches")
            problem(away, 503, "unreachable")
            assert int(away.headers["retry-after"]) > 0
            assert (await api.get("/health")).status_code == 200
            database.restore()
            await eventually(ready)
            database.stall()
            began = time.monotonic()
            assert "fanout_database_up 0" in (await api.get("/metrics")).text
            assert time.monotonic() - began < REQUEST_SECONDS
            database.restore()
            await eventually(ready)
            temporal.cut()
            assert problem(await api.get("/ready"), 503, "not_ready")["setting"] == "the test"
            temporal.restore()
            await eventually(ready)
            await fanout.pool.execute("update fanout.meta set schema_version = 1")
            assert "starter.py migrate" in problem(await api.get("/ready"), 503, "not_ready")["detail"]
