"""The stream over HTTP: how it begins, resumes and ends, and what a client that vanishes leaves behind."""

import asyncio
import signal
import socket
import struct
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import pytest

from fanout.client.purging import Purging
from fanout.devstack.ports import free_ports
from fanout.http import events
from tests.live.support import until
from tests.live.web import HOST, READ_SECONDS, reader, serving
from tests.store.support import LONG_GRACE, add_batch
from tests.support import ROOT, Deployment, eventually

EMIT = "select fanout.emit($1, $2)"
NEWS = """{"kind": "told", "class": "batch", "data": {"text": "%s"}}"""


async def closed_batch(fanout: Deployment) -> UUID:
    """An empty batch, closed: its events are submitted, started, closed."""
    batch_id = await add_batch(fanout.client.store, 0)
    assert await fanout.client.store.close_batch(batch_id, 1, LONG_GRACE)
    return batch_id


async def test_a_closed_batch_also_when_purged_answers_its_close_and_then_204(fanout: Deployment) -> None:
    batch_id = await closed_batch(fanout)
    async with serving(fanout.client) as address, httpx.AsyncClient() as http:
        ears = reader(address, batch_id)
        assert [message.kind for message in await ears.all()] == ["snapshot", "closed"]
        assert ears.heard[-1].id == "3"
        assert await ears.all() == []
        assert ears.answers == [200, 204]
        await Purging(fanout.client.store, timedelta(0)).purge_one(batch_id)
        assert await ears.all() == []
        late = reader(address, batch_id)
        assert [message.kind for message in await late.all()] == ["snapshot", "closed"]
        assert await late.all() == []
        assert (ears.answers, late.answers) == ([200, 204, 204], [200, 204])
        assert (await http.get(f"{address}/batches/{uuid4()}/events")).status_code == 404
        assert (await http.head(ears.url)).status_code == 200


async def test_an_id_that_cannot_be_resumed_gets_a_reset_and_the_story(fanout: Deployment) -> None:
    batch_id = await closed_batch(fanout)
    async with serving(fanout.client) as address:
        for given in ("abc", "-1", str(10**30), "4", "1e1", "\x01", b"\xff\xfe"):
            ears = reader(address, batch_id, given)
            assert [message.kind for message in await ears.all()] == ["reset", "snapshot", "closed"]
            assert ears.heard[0].id == ""
            assert ears.answers == [200]
        again = reader(address, batch_id, "1")
        assert [message.id for message in await again.all()] == [None, "2", "3"]


async def test_a_retry_is_seen_by_who_comes_back_after_it(fanout: Deployment) -> None:
    batch_id = await add_batch(fanout.client.store, 1)
    await fanout.client.store.cancel_batch(batch_id, "enough")
    await fanout.client.store.close_batch(batch_id, 1, LONG_GRACE)
    async with serving(fanout.client) as address:
        ears = reader(address, batch_id)
        assert [message.kind for message in await ears.all()] == ["snapshot", "closed"]
        assert await ears.all() == []
        assert await fanout.client.store.reopen_batch(batch_id, status="cancelled") == (2, 1)
        rest = asyncio.create_task(ears.all())
        await until(lambda: len(ears.heard) >= 4)
        await fanout.client.store.cancel_batch(batch_id, "again")
        await fanout.client.store.close_batch(batch_id, 2, LONG_GRACE)
        heard = [message for message in await rest if message.id]
        assert [message.data["kind"] for message in heard] == ["reopened", "cancelling", "closed"]
        assert heard[-1].data["data"]["epoch"] == 2
        assert await ears.all() == []
        whole = [message.data["kind"] for message in await reader(address, batch_id, "0").all() if message.id]
        assert whole == ["submitted", "started", "cancelling", "closed", "reopened", "cancelling", "closed"]


async def test_a_stream_tells_proxies_to_pass_it_on_and_speaks_when_nothing_happens(
    fanout: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COMMENT_SECONDS", 0.2)
    batch_id = await add_batch(fanout.client.store, 1)
    async with serving(fanout.client) as address:
        ears = reader(address, batch_id)
        began = time.monotonic()
        listening = asyncio.create_task(ears.all())
        await until(lambda: len(ears.heard) == 3)
        assert time.monotonic() - began < 15
        await until(lambda: ears.comments >= 3)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        found = {name: ears.headers.get(name) for name in ("content-type", "cache-control", "x-accel-buffering")}
        assert found["cache-control"] == "no-cache"
        assert found["x-accel-buffering"] == "no"
        assert str(found["content-type"]).startswith("text/event-stream")
        assert "content-encoding" not in ears.headers
        await until(lambda: fanout.client.hub.readers == 0)


async def test_clients_that_vanish_leave_nothing_behind(fanout: Deployment) -> None:
    batch_id = await add_batch(fanout.client.store, 1)
    async with serving(fanout.client) as address:
        parts = urlsplit(address)
        request = f"GET /batches/{batch_id}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        for number in range(200):
            with socket.create_connection((HOST, parts.port or 0)) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.sendall(request)
                if number % 5 == 0:
                    await asyncio.sleep(0)
        ears = reader(address, batch_id)
        listening = asyncio.create_task(ears.all())
        await until(lambda: len(ears.heard) == 3)
        await until(lambda: fanout.client.hub.readers == 1)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await until(lambda: fanout.client.hub.readers == 0)
    sessions = (
        "select count(*) from pg_stat_activity where datname = current_database() and backend_type like 'client%'"
    )

    async def few_sessions() -> bool:
        return bool(await fanout.pool.fetchval(sessions) <= 16)

    await eventually(few_sessions)


async def test_a_reader_that_stalls_is_cut_off_and_holds_up_nobody(
    fanout: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "STALLED_SECONDS", 5.0)
    batch_id = await add_batch(fanout.client.store, 1)
    async with serving(fanout.client) as address:
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect((HOST, urlsplit(address).port))
        stalled.sendall(f"GET /batches/{batch_id}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await until(lambda: fanout.client.hub.readers == 1)
        ears = reader(address, batch_id)
        listening = asyncio.create_task(ears.all())
        page = "[" + ",".join([NEWS % ("x" * 8_000)] * 100) + "]"
        for _ in range(8):
            await fanout.pool.execute(EMIT, batch_id, page)
        await until(lambda: ears.last_event_id == "802")
        await until(lambda: fanout.client.hub.readers == 1)
        stalled.close()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        ids = [int(message.id) for message in ears.heard if message.id]
        assert ids == list(range(1, 803))


async def test_streams_end_within_a_second_of_sigterm(fanout: Deployment, tmp_path: Path) -> None:
    [port] = free_ports([], 1)
    batch_id = await add_batch(fanout.client.store, 1)
    with (tmp_path / "app.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.live.app", str(port)]
        server = subprocess.Popen(  # noqa: ASYNC220
            command, cwd=ROOT, env=fanout.environment, stdout=log, stderr=log
        )
    try:
        ears = reader(f"http://{HOST}:{port}", batch_id)

        async def connected() -> bool:
            try:
                async with httpx.AsyncClient(timeout=READ_SECONDS) as http:
                    async for _ in ears.listen(http):
                        return True
            except httpx.ConnectError:
                assert server.poll() is None, (tmp_path / "app.log").read_text()
            return False

        await eventually(connected)
        streams = [reader(ears.url.partition("/batches")[0], batch_id) for _ in range(5)]
        listening = [asyncio.create_task(each.all()) for each in streams]
        await until(lambda: all(len(each.heard) == 3 for each in streams))
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        await asyncio.gather(*listening, return_exceptions=True)
        ended = time.monotonic() - began
        assert await asyncio.to_thread(server.wait, 60) in (0, -signal.SIGTERM)
        # A second, on a machine that is not busy; without the watch for the signal they would go on for ever.
        assert ended < 8
        assert [
            each for each in await asyncio.gather(*listening, return_exceptions=True) if type(each) is not list
        ] == []
        logged = (tmp_path / "app.log").read_text()
        assert "ERROR" not in logged
        assert "Traceback" not in logged
    finally:
        server.kill()
        server.wait()
