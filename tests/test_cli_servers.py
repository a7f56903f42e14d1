"""The commands that make servers ready, run them, or need none; and what a terminal shows."""

import asyncio
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from rich.console import Console

from fanout import Status
from fanout.cli.board import Board
from fanout.devstack import Stack
from fanout.store import SCHEMA_VERSION
from tests.faults.servers import children_of
from tests.support import ROOT, Deployment, eventually
from tests.test_cli import ROW, bare, jsonl, lines
from tests.test_demo import REAL, home, processes_of, until_gone

__all__ = ["home"]


def tried(folder: Path, handler: str, payload: Any, code: int) -> dict[str, Any]:
    """The row of `try`, where there is no server."""
    done = bare(
        folder, "try", handler, "--payload", json.dumps(payload), "--json", FANOUT_HANDLERS="tests.handlers.tried"
    )
    [row] = lines(done, code=code)
    assert (list(row), row["seq"], row["item_key"]) == (ROW, 0, "0")
    return row


def test_try_runs_a_handler_once_in_its_own_mode(tmp_path: Path) -> None:
    assert tried(tmp_path, "tried.loop", {"n": 1}, 0)["result"] == {"payload": {"n": 1}, "attempt": 1}
    assert tried(tmp_path, "tried.thread", None, 0)["result"].startswith("fanout-handler")
    assert tried(tmp_path, "tried.process", os.getpid(), 0)["result"] == 0
    invalid = tried(tmp_path, "tried.loop", {"n": "x"}, 1)
    assert (invalid["status"], invalid["error"]["code"], invalid["attempts"]) == ("failed", "invalid_payload", 1)
    overran = tried(tmp_path, "tried.slow", None, 1)
    assert (overran["status"], overran["error"]["code"]) == ("failed", "timeout")
    died = tried(tmp_path, "tried.process", 0, 1)
    assert (died["status"], died["crashes"], died["attempts"]) == ("pending", 1, 0)
    later = tried(tmp_path, "tried.later", None, 1)
    assert (later["status"], later["error"]["code"], later["attempts"]) == ("pending", "throttled", 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("try", "nope", "--payload", "1"), "unknown_handler"),
        (("try", "document.extract", "--payload", "{"), "not JSON"),
        (("try", "document.extract"), "--payload"),
    ],
)
def test_a_try_that_cannot_be_is_named(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    done = bare(tmp_path, *arguments)
    assert (done.returncode, named in done.stderr) == (2, True), done.stderr


def test_a_broken_module_is_named(tmp_path: Path) -> None:
    done = bare(tmp_path, "try", "x", "--payload", "1", FANOUT_HANDLERS="no.such.module")
    assert (done.returncode, "broken_module: module 'no.such.module'" in done.stderr) == (2, True)


@contextmanager
def empty_database(stack: Stack) -> Iterator[str]:
    """The address of a database without a schema."""
    name = f"empty_{uuid4().hex[:12]}"

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(stack.database_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(execute(f'create database "{name}" template template0'))
    try:
        yield f"{stack.database_url.rpartition('/')[0]}/{name}"
    finally:
        asyncio.run(execute(f'drop database "{name}" with (force)'))


def test_migrate_makes_the_schema_once(stack: Stack, tmp_path: Path) -> None:
    with empty_database(stack) as url:
        servers = {"FANOUT_DATABASE_URL": url, "TEMPORAL_ADDRESS": stack.temporal_address}
        early = bare(tmp_path, "list", **servers)
        assert (early.returncode, "starter.py migrate" in early.stderr) == (3, True)
        [first] = lines(bare(tmp_path, "migrate", "--json", **servers))
        assert (list(first), first["from"], first["to"]) == (["from", "to", "applied"], 0, SCHEMA_VERSION)
        assert first["applied"][0] == "0001_rows.sql"
        assert lines(bare(tmp_path, "--json", "migrate", **servers))[0]["applied"] == []
        assert lines(bare(tmp_path, "list", "--json", **servers)) == []


def test_migrate_without_temporal_applies_the_schema_and_ends_with_3(stack: Stack, tmp_path: Path) -> None:
    with empty_database(stack) as url:
        unnamed = bare(tmp_path, "migrate", "--json", FANOUT_DATABASE_URL=url)
        assert (unnamed.returncode, json.loads(unnamed.stdout)["to"]) == (3, SCHEMA_VERSION)
        assert "TEMPORAL_ADDRESS" in unnamed.stderr
        dead = bare(tmp_path, "migrate", "--json", FANOUT_DATABASE_URL=url, TEMPORAL_ADDRESS="127.0.0.1:1")
        assert (dead.returncode, json.loads(dead.stdout)["applied"]) == (3, [])


def test_migrate_prints_its_sql_without_a_server(tmp_path: Path) -> None:
    done = bare(tmp_path, "migrate", "--print")
    assert done.returncode == 0
    assert "create table fanout.batches" in done.stdout
    assert "insert into fanout.meta (schema_version)" in done.stdout


def start(home: Path, command: str, **settings: str) -> subprocess.Popen[str]:
    """Starts `starter.py stack` or `dev`, in an environment that points at servers that do not exist."""
    return subprocess.Popen(
        [sys.executable, "starter.py", command, "--json"],
        cwd=ROOT,
        env={**os.environ, **REAL, "FANOUT_HOME": str(home), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_stack_is_ready_for_clients_and_ends_with_its_command(home: Path) -> None:
    with start(home, "stack") as stack:
        assert stack.stdout
        found = json.loads(stack.stdout.readline())
        assert list(found) == ["database_url", "temporal_address", "ui_url"]
        joined = bare(home, "list", "--json")
        assert (joined.returncode, joined.stdout) == (0, "")
        assert f"chosen by the dev stack in {home}" in joined.stderr
        stack.send_signal(signal.SIGTERM)
        _, said = stack.communicate(timeout=60)
    assert (stack.returncode, "Traceback" in said) == (0, False)
    assert not processes_of(home)


async def is_ready(http_url: str) -> bool:
    async with httpx.AsyncClient(base_url=http_url) as api:
        with suppress(httpx.TransportError):
            return (await api.get("/ready")).status_code == 200
    return False


def test_dev_works_batches_and_drains_on_an_interrupt(home: Path, tmp_path: Path) -> None:
    with start(home, "dev", FANOUT_HANDLERS="tests.handlers.basic") as dev:
        assert dev.stdout
        assert dev.stderr
        http_url = json.loads(dev.stdout.readline())["http_url"]
        assert any("is ready" in line for line in dev.stderr)
        done = bare(home, "submit", "test.echo", "--items", jsonl(tmp_path, 1), "--wait", "--json")
        assert lines(done)[1]["status"] == "completed"
        asyncio.run(eventually(lambda: is_ready(http_url)))
        dev.send_signal(signal.SIGINT)
        _, said = dev.communicate(timeout=60)
    assert (dev.returncode, "Traceback" in said) == (0, False), said
    assert not processes_of(home)


def test_a_killed_dev_takes_its_worker_along(home: Path) -> None:
    with start(home, "dev") as dev:
        assert dev.stderr
        assert any("is ready" in line for line in dev.stderr)
        dev.kill()
    until_gone(home)


def test_dev_ends_with_its_http_interface(home: Path) -> None:
    with start(home, "dev") as dev:
        assert dev.stdout
        http_url = json.loads(dev.stdout.readline())["http_url"]
        asyncio.run(eventually(lambda: is_ready(http_url)))
        [serving] = [pid for pid in children_of(dev.pid) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(serving, signal.SIGTERM)
        _, said = dev.communicate(timeout=60)
    assert (dev.returncode, "the HTTP interface ended by itself, with 0" in said) == (0, True), said
    assert not processes_of(home)


def on_a_terminal(fanout: Deployment, *arguments: str) -> tuple[int, str]:
    """Runs `starter.py` with a terminal of 80 columns; its exit code and everything that it showed."""
    ours, theirs = pty.openpty()
    environment = {**fanout.environment, "COLUMNS": "80", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "starter.py", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    return process.wait(), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that nobody holds the other end any more.
        return b""


async def test_a_terminal_shows_a_bar_and_the_newest_failures(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    items = jsonl(tmp_path, *({"key": f"key {n}\x1b[2J", "payload": n} for n in range(3)))
    refused = on_a_terminal(fanout, "submit", "test.fail", "--items", items, "--wait")
    assert (refused[0], "\x1b[2J" in refused[1]) == (2, False)
    items = jsonl(tmp_path, *({"key": f"key {n}", "payload": n} for n in range(3)))
    refused = on_a_terminal(fanout, "submit", "test.fail", "--items", items, "--title", "\x1b[2Jx")
    assert (refused[0], "\x1b[2J" in refused[1]) == (2, False)
    code, shown = on_a_terminal(fanout, "submit", "test.fail", "--items", items, "--wait", "--title", "x")
    assert code == 1
    assert "3/3" in shown
    assert "hopeless: item key 2 cannot work" in shown
    assert "completed with failures" in shown
    assert "\x1b[2J" not in shown


def test_the_rate_on_a_terminal_takes_no_cancelled_item_for_work() -> None:
    now = 0.0
    shown = io.StringIO()
    # Not `COLUMNS` and the like: whatever runs the tests may have them.
    console = Console(file=shown, force_terminal=True, width=120, get_time=lambda: now, _environ={})
    batch = dict.fromkeys(Status.model_fields) | {
        **{"batch_id": uuid4(), "workflow_id": "w", "handler": "h", "key": "k", "status": "cancelling", "epoch": 1},
        **{"created_at": datetime.now(UTC), "total": 1_000, "processing": 0, "workers": 1, "duplicates": 0},
    }
    with Board(console) as board:
        for completed, failed, cancelled in ((0, 0, 0), (4, 1, 0), (8, 2, 0), (8, 2, 990)):
            counts = {"completed": completed, "failed": failed, "cancelled": cancelled}
            board.update(Status(**{**batch, **counts, "pending": 1_000 - sum(counts.values())}), [])
            now += 1
    assert "5.0/s" in shown.getvalue()
    assert "1000/1000" in shown.getvalue()
    assert set(re.findall(r"[\d.,]+(?=/s)", shown.getvalue())) == {"5.0"}
