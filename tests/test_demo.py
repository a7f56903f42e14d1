"""The demo, as a fresh clone runs it: what its last line promises, and that it leaves nothing running."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.documents.papers import EXPECTED_FAILURES, demo_items
from fanout.devstack.locks import SERVERS, SUPERVISOR, is_held
from tests.support import ROOT

REAL = {"FANOUT_DATABASE_URL": "postgresql://u@127.0.0.1:1/real", "TEMPORAL_ADDRESS": "127.0.0.1:1"}


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for stacks; PostgreSQL, as another user, can enter it, which pytest's own does not let it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts `starter.py demo`, in an environment that points at servers that do not exist."""
    return subprocess.Popen(
        [sys.executable, "starter.py", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **REAL, "FANOUT_HOME": str(home), "FANOUT_CONCURRENCY": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(home: Path) -> list[str]:
    """The command lines of all processes that mention the folder, or have it in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            words = command + b"\0" + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(home).encode() in words and process.name != str(os.getpid()):
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def until_gone(home: Path) -> None:
    """Waits until no process of the folder is left."""
    deadline = time.monotonic() + 30
    while left := processes_of(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_the_demo_keeps_its_promises(home: Path) -> None:
    with start(home, "--json") as demo:
        out, said = demo.communicate(timeout=200)
    assert demo.returncode == 0, said
    [line] = out.splitlines()
    answer = json.loads(line)
    total = len(demo_items())
    assert answer["status"] == "completed_with_failures"
    assert (answer["total"], answer["failed"]) == (total, len(EXPECTED_FAILURES))
    assert (answer["completed"] + answer["failed"], answer["pending"], answer["processing"]) == (total, 0, 0)
    assert (answer["worker_kills"], answer["recorded_twice"], answer["violations"]) == (1, 0, [])
    assert total / 4 <= answer["settled_at_kill"] <= total / 2
    assert answer["processing_at_kill"] > 0
    assert answer["taken_over"] > 0
    for name, code in EXPECTED_FAILURES.items():
        assert [row for row in said.splitlines() if name in row and code in row], said
    assert "127.0.0.1:1/real" not in said
    assert not processes_of(home)
    assert not is_held(home / "demo" / SUPERVISOR)
    assert not is_held(home / "demo" / SERVERS)


def test_an_interrupted_demo_leaves_nothing_running(home: Path) -> None:
    with start(home) as demo:
        assert demo.stderr
        assert any("processing" in line for line in demo.stderr)
        demo.send_signal(signal.SIGINT)
        out, said = demo.communicate(timeout=60)
    assert (demo.returncode, out, "Traceback" in said) == (130, "", False), said
    assert not processes_of(home)


def test_a_killed_demo_leaves_nothing_running(home: Path) -> None:
    with start(home) as demo:
        assert demo.stderr
        assert any("processing" in line for line in demo.stderr)
        demo.kill()
    until_gone(home)


def test_the_demo_ignores_what_points_elsewhere(home: Path) -> None:
    with start(home, "--database-url", "postgresql://u@127.0.0.1:1/x") as demo:
        _, said = demo.communicate(timeout=60)
    assert (demo.returncode, "--database-url does not apply" in said) == (2, True)
