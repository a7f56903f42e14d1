"""The command line, as real processes against real servers."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fanout.cli.app import COMMANDS, run
from tests.forkserver import run_script
from tests.support import ROOT, Deployment

pytestmark = pytest.mark.steady

SUBMIT = ["batch_id", "workflow_id", "handler", "key", "outcome", "total"]
COUNTS = ["total", "pending", "processing", "completed", "failed", "cancelled"]
TIMES = ["created_at", "started_at", "progress_at", "closed_at"]
FACTS = ["reason", "workers", "deadline_at", "max_failures", "breaker", "duplicates", "duplicate_origin", "purged_at"]
STATUS = ["batch_id", "workflow_id", "handler", "key", "title", "status", *COUNTS, "epoch", *TIMES, *FACTS]
ROW = ["seq", "item_key", "status", "attempts", "crashes", "result", "error"]
ERROR = {"code", "type", "message", "traceback", "attempt", "at", "truncated", "length"}


def lines(done: subprocess.CompletedProcess[str], code: int = 0) -> list[dict[str, Any]]:
    """The JSON objects on stdout, of a command that ended with `code`."""
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def jsonl(folder: Path, *values: Any) -> str:
    """A file with these values, one a line."""
    path = folder / f"{uuid4().hex}.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(path)


def bare(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs `starter.py` where no stack runs and nothing names a server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FANOUT_", "TEMPORAL_"))}
    environment = {**kept, "FANOUT_HOME": str(folder), "TEMPORAL_CONFIG_FILE": os.devnull, **settings}
    return run_script(("starter.py", *arguments), environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert "--database-url" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        "submit test.echo --sql x --items x",
        "submit test.echo --items x --sql-url x",
        "submit test.echo --items x --priority 1",
        "schedule",
        "schedule run",
        "size",
        "list --limit 0",
        "list --status nope",
        "--nope list",
    ],
)
def test_what_does_not_exist_yet_is_refused(arguments: str) -> None:
    assert run(arguments.split()) == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--max-failures 120%", "max_failures"),
        ("--max-failures some", "max_failures"),
        ("--max-failures 1 --on-budget stop", "on_budget"),
        ("--deadline 2hours", "--deadline"),
        ("--deadline 999999999999d", "--deadline"),
        ("--deadline 0s", "deadline"),
        ("--on-close No+Name", "on_close"),
        ("--dedup sometimes", "--dedup"),
        ("--dedup 0s", "dedup"),
    ],
)
def test_a_bad_value_of_an_option_is_named(arguments: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "test.echo", "--items", "x", "--dry-run", *arguments.split()]) == 2
    assert named in capsys.readouterr().err


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from fanout.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "temporal-fanout[cli]" in done.stderr


async def test_every_answer_has_the_promised_shape(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    items = jsonl(tmp_path, {"key": "a", "payload": {"n": 1}}, {"key": "b", "payload": [2]})
    options = ("--key", "k1", "--title", "two things", "--wait", "--json")
    submitted, status = lines(fanout.run("submit", "test.echo", "--items", items, *options))
    assert (list(submitted), list(status)) == (SUBMIT, STATUS)
    assert (submitted["outcome"], submitted["total"], submitted["key"]) == ("started", 2, "k1")
    assert (status["status"], status["completed"], status["title"]) == ("completed", 2, "two things")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", status["created_at"])
    batch = submitted["batch_id"]
    shown = {**status, "recent_duplicates": []}
    assert lines(fanout.run("--json", "status", batch)) == [shown]
    assert lines(fanout.run("status", "test.echo/k1", "--json")) == [shown]
    assert lines(fanout.run("list", "--handler", "test.echo", "--json", "--status", "completed")) == [status]
    assert lines(fanout.run("watch", batch, "--json")) == [status]
    rows = lines(fanout.run("results", batch))
    assert [list(row) for row in rows] == [ROW, ROW]
    assert [(row["seq"], row["item_key"], row["result"]) for row in rows] == [(0, "a", {"n": 1}), (1, "b", [2])]
    assert lines(fanout.run("results", batch, "--with-payload"))[1]["payload"] == [2]
    [item] = lines(fanout.run("item", batch, "b", "--json"))
    assert list(item) == [*ROW, "payload", "due_at", "claimed_at", "settled_at", "worker", "history"]
    assert lines(fanout.run("verify", batch, "--json")) == [{"batches": 1, "violations": []}]
    assert lines(fanout.run("verify", "--json")) == [{"batches": 1, "violations": []}]
    assert lines(fanout.run("cancel", batch, "--json")) == [status]


async def test_workers_and_handlers_are_listed_one_a_line(fanout: Deployment) -> None:
    worker = await fanout.start_worker()
    [row] = lines(fanout.run("workers", "--json"))
    assert {"worker_id", "identity", "handlers", "concurrency", "build", "started_at", "seen_at"} <= row.keys()
    assert row["identity"] in str(worker.log)
    assert "test.echo" in row["handlers"]
    handlers = {row["name"]: row for row in lines(fanout.run("handlers", "--json"))}
    assert (handlers["test.fail"]["workers"], handlers["test.fail"]["local"]) == (1, False)
    assert (handlers["document.extract"]["workers"], handlers["document.extract"]["local"]) == (0, True)
    assert (handlers["test.fail"]["mode"], handlers["test.fail"]["maximum_attempts"]) == ("loop", 2)


async def test_a_batch_with_failures_ends_a_wait_with_1(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    items = jsonl(tmp_path, 1)
    submitted, status = lines(fanout.run("submit", "test.fail", "--items", items, "--wait", "--json"), code=1)
    assert (status["status"], status["failed"]) == ("completed_with_failures", 1)
    [row] = lines(fanout.run("results", submitted["batch_id"], "--status", "failed"))
    assert (row["error"]["code"], row["error"].keys()) == ("hopeless", ERROR)
    assert fanout.run("watch", submitted["batch_id"]).returncode == 1
    assert fanout.run("status", submitted["batch_id"]).returncode == 0


async def test_a_wrong_call_stores_nothing_and_is_named(fanout: Deployment, tmp_path: Path) -> None:
    one, other = jsonl(tmp_path, 1), jsonl(tmp_path, 2)
    assert fanout.run("submit", "test.echo", "--items", one, "--key", "k", "--allow-unknown").returncode == 0
    wrong = {
        "unknown_handler": ("submit", "test.echo", "--items", one),
        "key_conflict": ("submit", "test.echo", "--items", other, "--key", "k", "--allow-unknown"),
        "unknown_batch": ("status", "test.echo/nope"),
        "unknown_item": ("item", "test.echo/k", "nope"),
        "matches no file": ("submit", "test.echo", "--glob", str(tmp_path / "*.pdf")),
        "cannot be read": ("submit", "test.echo", "--items", str(tmp_path / "missing"), "--allow-unknown"),
        "exactly one of --items, --glob and --sql": ("submit", "test.echo"),
        "--glob is given more than once": ("submit", "test.echo", "--glob", one, "--key", "x", "--glob", other),
        "handler's name": ("submit", "Test Echo", "--items", one),
        "not UTF-8": ("submit", "test.echo", "--items", one, "--key", "\udcff"),
    }
    for named, arguments in wrong.items():
        done = fanout.run(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), (arguments, done)
        assert named in done.stderr, (arguments, done.stderr)
    known = fanout.run("submit", "test.echo", "--items", one).stderr
    assert "document.extract" in known
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1


async def test_status_says_that_a_batch_waits_for_a_worker(fanout: Deployment, tmp_path: Path) -> None:
    done = fanout.run("submit", "nobody.knows", "--items", jsonl(tmp_path, 1), "--key", "k", "--allow-unknown")
    assert done.returncode == 0
    assert "waits for a worker that knows nobody.knows" in fanout.run("status", "nobody.knows/k").stdout
    [status] = lines(fanout.run("cancel", "nobody.knows/k", "--reason", "no use", "--json"))
    assert (status["status"], status["cancelled"], status["reason"]) == ("cancelling", 1, "no use")


def test_a_server_that_does_not_answer_ends_with_3(tmp_path: Path) -> None:
    nothing = bare(tmp_path, "list")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    assert "starter.py dev" in nothing.stderr
    dead = {"FANOUT_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x", "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    done = bare(tmp_path, "list", **dead)
    assert done.returncode == 3
    assert "PostgreSQL at postgresql://u:***@127.0.0.1:1/x (chosen by FANOUT_DATABASE_URL)" in done.stderr
    assert "chosen by TEMPORAL_ADDRESS" in done.stderr
    assert "secret" not in done.stderr
    assert (
        "chosen by --database-url"
        in bare(tmp_path, "list", "--database-url", "postgresql://127.0.0.1:1/x", **dead).stderr
    )


def test_a_bad_setting_ends_with_2_and_names_it(tmp_path: Path) -> None:
    done = bare(tmp_path, "list", FANOUT_CONCURRENCY="many")
    assert done.returncode == 2
    assert "FANOUT_CONCURRENCY" in done.stderr


async def test_options_may_stand_before_or_after_the_command(fanout: Deployment) -> None:
    for arguments in (("--json", "--address", "127.0.0.1:1", "list"), ("list", "--address", "127.0.0.1:1", "--json")):
        done = fanout.run(*arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert "Temporal at 127.0.0.1:1 (chosen by --address)" in done.stderr


async def test_many_short_runs_all_end_well(fanout: Deployment, tmp_path: Path) -> None:
    fanout.run("submit", "test.echo", "--items", jsonl(tmp_path, 1), "--key", "k", "--allow-unknown")
    limit = asyncio.Semaphore(4)

    async def one() -> int:
        async with limit:
            return (await asyncio.to_thread(fanout.run, "status", "test.echo/k", "--json")).returncode

    assert await asyncio.gather(*(one() for _ in range(40))) == [0] * 40


def first_line(fanout: Deployment, command: str) -> subprocess.CompletedProcess[str]:
    """Runs `starter.py` with a reader that goes away after one line."""
    shell = ["bash", "-c", f"set -o pipefail; {sys.executable} starter.py {command} | head -n 1"]
    return subprocess.run(shell, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, check=False)


async def test_a_closed_pipe_ends_quietly(fanout: Deployment, tmp_path: Path) -> None:
    items = jsonl(tmp_path, *["x" * 200] * 2_000)
    fanout.run("submit", "test.echo", "--items", items, "--key", "k", "--allow-unknown")
    for command in ("list", "results test.echo/k", "results test.echo/k --format csv"):
        done = first_line(fanout, command)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
        assert not [line for line in done.stderr.splitlines() if not line.startswith(("PostgreSQL ", "Temporal "))]


def interrupted(fanout: Deployment, *arguments: str, until: str) -> tuple[int, str]:
    """Sends SIGINT once `until` stands on stderr; the exit code and the rest of stderr."""
    process = subprocess.Popen(
        [sys.executable, "starter.py", *arguments],
        cwd=ROOT,
        env=fanout.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr
        assert process.stdin
        assert any(until in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.stdin.close()
    return process.returncode, rest


async def test_an_interrupted_wait_says_that_the_batch_goes_on(fanout: Deployment, tmp_path: Path) -> None:
    options = ("--key", "k", "--wait", "--allow-unknown")
    code, said = interrupted(fanout, "submit", "test.echo", "--items", jsonl(tmp_path, 1), *options, until="0 of 1")
    batch = await fanout.client.get("test.echo/k")
    assert (code, f"the batch goes on: `watch {batch.batch_id}`" in said) == (130, True), said


async def test_an_interrupted_submit_stores_nothing(fanout: Deployment) -> None:
    options = ("submit", "test.echo", "--items", "-", "--allow-unknown")
    code, said = interrupted(fanout, *options, until="Temporal ")
    assert (code, said.strip()) == (130, "interrupted")
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


def test_a_standard_input_that_is_closed_is_named(fanout: Deployment) -> None:
    command = (sys.executable, "starter.py", "submit", "test.echo", "--items", "-", "--allow-unknown")
    closing = ("sh", "-c", 'exec "$@" <&-', "sh", *command)
    done = subprocess.run(closing, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "standard input cannot be read" in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_whoever_closes_the_outputs_gets_no_answer_and_no_fault(fanout: Deployment) -> None:
    closing = ("sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "starter.py", "list", "--json")
    done = subprocess.run(closing, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_a_full_disk_is_no_servers_fault(fanout: Deployment, options: tuple[str, ...]) -> None:
    await fanout.client.submit("test.echo", [1], allow_unknown=True)
    full = ("sh", "-c", 'exec "$@" >/dev/full', "sh", sys.executable, "starter.py", "list", *options)
    done = await asyncio.to_thread(
        subprocess.run, full, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "output_failed: the answer cannot be written" in done.stderr) == (2, True), done.stderr


async def test_a_fault_of_ours_ends_with_70(fanout: Deployment) -> None:
    await fanout.pool.execute("alter table fanout.batches rename to gone")
    done = fanout.run("list")
    assert done.returncode == 70
    assert "Traceback" in done.stderr
