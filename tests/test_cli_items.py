"""Items on their way in and results on their way out, by the command line."""

import asyncio
import csv
import json
import os
import signal
import subprocess
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from fanout.cli.sources import read_csv, read_items, read_jsonl
from fanout.client import Item
from fanout.client.files import match_files
from fanout.errors import InvalidItem, InvalidRequest
from tests.forkserver import Forked, start_script
from tests.support import Deployment, eventually
from tests.test_cli import jsonl, lines

LIMIT = 1_048_576
KNOWN = "--allow-unknown"
# A worker that lives for a minute has a sweeper besides.
BATCHES = "WorkflowType = 'Batch'"


def start(fanout: Deployment, *arguments: str) -> Forked | subprocess.Popen[bytes]:
    with open(os.devnull, "r+b") as nothing:
        return start_script(("starter.py", *arguments), fanout.environment, (nothing.fileno(),) * 3)


def from_jsonl(text: str | bytes) -> list[Item]:
    return list(read_jsonl(BytesIO(text.encode() if isinstance(text, str) else text), "f", LIMIT))


def from_csv(text: str) -> list[Item]:
    return list(read_csv(StringIO(text, newline=""), "f", LIMIT))


def test_a_line_is_an_item_or_a_payload() -> None:
    assert from_jsonl('{"key":"a","payload":null}\n') == [Item(None, "a")]
    extra = {"key": "a", "payload": 1, "more": 2}
    assert from_jsonl(json.dumps(extra)) == [Item(extra)]
    assert from_jsonl('{"key":"a"}\n{"payload":1}') == [Item({"key": "a"}), Item({"payload": 1})]
    assert from_jsonl("\ufeff1\r\n\n \t\n2") == [Item(1), Item(2)]
    assert from_jsonl("") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n{", "item 1: line 2 of f: not JSON"),
        ("1\n\n{", "item 1: line 3 of f: not JSON"),
        ('{"a":1,"a":2}', "the name 'a' stands twice"),
        ("NaN", "not JSON: NaN"),
        ("[" * 100_000, "200 levels of nesting"),
        ('{"key":1,"payload":1}', "its key must be a string, not int"),
        ('{"key":null,"payload":1}', "its key must be a string, not null"),
        (b"\xff", "line 1 of f: not UTF-8"),
        ("1\n".encode("utf-16"), "not UTF-8"),
        (b'"' + b"x" * 7 * LIMIT, "longer than"),
    ],
)
def test_a_bad_line_is_named(text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidItem, match="item") as raised:
        from_jsonl(text)
    assert said in str(raised.value)


def test_a_row_of_csv_is_an_object_of_texts() -> None:
    assert from_csv("key,a\nk1,1\n\nk2,\n") == [Item({"a": "1"}, "k1"), Item({"a": ""}, "k2")]
    assert from_csv('a,b\n"1\n2","x, y"\n') == [Item({"a": "1\n2", "b": "x, y"})]
    assert from_csv(f"a\n{'x' * 500_000}\n") == [Item({"a": "x" * 500_000})]
    assert from_csv("a,b\n") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n1\n", "item 1: line 3 of f has 1 cells, the header 2"),
        ("a\n1,2\n", "line 2 of f has 2 cells, the header 1"),
        ("a,a\n", "stands twice in the header"),
        ("a,\n", "column 2 of f has no name"),
        ("\na\n", "first line of f is blank"),
        ("", "f has no header line"),
        ('a\n"x\n', "after line 2 of f: unexpected end of data"),
        (f"a\n{'x' * (LIMIT + 1)}\n", "field larger than field limit"),
    ],
)
def test_bad_csv_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        from_csv(text)
    assert said in str(raised.value)


def test_a_line_of_csv_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    """The file is longer than what is read ahead."""
    file = tmp_path / "f.csv"
    for bad, line in (
        (b"a\xff\n1\n", 1),
        (b"a\n" + b"x\n" * 99_997 + b"\xe9\ny\n", 99_999),
        ("a\n".encode("utf-16"), 1),
    ):
        file.write_bytes(bad)
        with pytest.raises(InvalidItem, match=f"line {line} of {file}: not UTF-8"):
            list(read_items(str(file), LIMIT))
    file.write_bytes("\ufeffa\né\n".encode())
    assert list(read_items(str(file), LIMIT)) == [Item({"a": "é"})]


def test_a_pattern_gives_its_files_sorted(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.txt", "sub/deep/c.txt", "x.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()
    expected = [str(tmp_path / name) for name in ("b.txt", "sub/a.txt", "sub/deep/c.txt")]
    assert match_files(f"{tmp_path}/**/*.txt") == [Item({"path": path}, path) for path in expected]
    (tmp_path / os.fsdecode(b"\xff.txt")).touch()
    with pytest.raises(InvalidItem, match="not UTF-8"):
        match_files(f"{tmp_path}/*.txt")


async def test_one_key_twice_is_refused_with_both_positions(fanout: Deployment, tmp_path: Path) -> None:
    twice = jsonl(tmp_path, *({"key": key, "payload": 1} for key in "aab"))
    for options in ([], ["--dry-run"]):
        done = fanout.run("submit", "test.echo", "--items", twice, KNOWN, *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert "duplicate_item_key: item key 'a' stands at positions 0 and 1" in done.stderr
    mixed = fanout.run("submit", "test.echo", "--items", jsonl(tmp_path, {"key": "a", "payload": 1}, 2), KNOWN)
    assert (mixed.returncode, "item 1" in mixed.stderr) == (2, True)
    for table in ("batches", "items", "results", "keys"):
        assert await fanout.pool.fetchval(f"select count(*) from fanout.{table}") == 0
    alike = jsonl(tmp_path, *({"key": key, "payload": 1} for key in ("\u00e9", "e\u0301", "a", "a ")))
    assert lines(fanout.run("submit", "test.echo", "--items", alike, KNOWN, "--json"))[0]["total"] == 4


async def test_a_dry_run_checks_everything_and_stores_nothing(fanout: Deployment, tmp_path: Path) -> None:
    good = ("submit", "test.echo", "--items", jsonl(tmp_path, 1, 2), "--dry-run", KNOWN, "--json")
    expected = {"batch_id": None, "workflow_id": None, "handler": "test.echo", "key": None, "outcome": "dry_run"}
    assert lines(fanout.run(*good)) == [{**expected, "total": 2}]
    named = {**expected, "key": "k", "workflow_id": "fanout/test.echo/k", "total": 2}
    assert lines(fanout.run(*good, "--key", "k")) == [named]
    assert fanout.run("submit", "test.echo", "--items", jsonl(tmp_path, 1), "--dry-run").returncode == 2
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0
    assert await fanout.pool.fetchval("select count(*) from fanout.keys") == 0


async def test_a_closed_key_is_done_already_however_many_ask(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    command = ("submit", "test.fail", "--items", jsonl(tmp_path, 1), "--key", "n1", "--wait", "--json")
    first, _ = lines(fanout.run(*command), code=1)
    again = await asyncio.gather(*(asyncio.to_thread(fanout.run, *command) for _ in range(4)))
    for done in again:
        answer, status = lines(done, code=1)
        assert (answer["outcome"], answer["batch_id"], status["failed"]) == ("already_done", first["batch_id"], 1)
    assert len([run async for run in fanout.temporal.list_workflows(BATCHES)]) == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.duplicates") == 4


async def test_a_submit_that_was_killed_is_healed_by_the_next(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    arguments = ("submit", "test.echo", "--items", jsonl(tmp_path, 1, 2), "--key", "n2", "--json")
    process = start(fanout, *arguments)

    async def stored() -> bool:
        return bool(await fanout.pool.fetchval("select count(*) from fanout.batches"))

    await eventually(stored)
    process.send_signal(signal.SIGKILL)
    process.wait()
    answer, status = lines(fanout.run(*arguments, "--wait"))
    assert answer["outcome"] in ("joined", "already_done")
    assert (status["status"], status["completed"]) == ("completed", 2)

    async def ended() -> bool:
        runs = [run async for run in fanout.temporal.list_workflows(BATCHES)]
        assert len(runs) <= 1
        return [run.status for run in runs] == [WorkflowExecutionStatus.COMPLETED]

    # Its list is a moment behind.
    await eventually(ended)


async def test_an_empty_batch_completes_at_once(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for source, text in ((str(empty), None), ("-", "")):
        done = fanout.run("submit", "test.echo", "--items", source, "--wait", "--json", text=text)
        _, status = lines(done)
        assert (status["status"], status["total"], status["pending"], status["failed"]) == ("completed", 0, 0, 0)
        assert status["closed_at"] >= status["created_at"]
        shown = fanout.run("status", status["batch_id"])
        assert "100 %" in shown.stdout
    assert fanout.run("submit", "test.echo", "--json").returncode == 2


async def test_json_comes_back_as_it_was_submitted(fanout: Deployment) -> None:
    await fanout.start_worker()
    values: list[Any] = [{}, [], "{}", "null", None, 0, False, "", 12345678901234567890123, 1.0, {"b": 1, "a": 2}]
    text = "".join(json.dumps(value) + "\n" for value in values)
    submitted, _ = lines(fanout.run("submit", "test.echo", "--items", "-", "--wait", "--json", text=text))
    rows = lines(fanout.run("results", submitted["batch_id"], "--with-payload"))
    for value, row in zip(values, rows, strict=True):
        assert (row["payload"], row["result"]) == (value, value)
        assert type(row["payload"]) is type(value)
    assert list(rows[-1]["payload"]) == ["b", "a"]
    for bad in ("1e400", '{"a":1,"a":2}', '"\\ud800"', '"\\u0000"', "[" * 100_000 + "]" * 100_000):
        done = fanout.run("submit", "test.echo", "--items", "-", text=bad)
        assert (done.returncode, "item 0" in done.stderr) == (2, True), (bad[:20], done.stderr)


async def test_results_go_whole_into_a_file(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    rows = [f'a "quoted", {number}\nline' for number in range(450)]
    submitted, _ = lines(fanout.run("submit", "test.echo", "--items", jsonl(tmp_path, *rows), "--wait", "--json"))
    batch, out = submitted["batch_id"], tmp_path / "out.csv"
    answer = lines(fanout.run("results", batch, "--format", "csv", "--out", str(out), "--json"))
    assert answer == [{"out": str(out), "rows": 450}]
    with out.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["result"] for row in read] == rows
    assert [row["seq"] for row in read] == [str(seq) for seq in range(450)]
    assert fanout.run("results", batch, "--format", "csv", "--json").returncode == 2
    for no_file in (tmp_path / "no" / "folder", tmp_path, "/dev/null"):
        assert fanout.run("results", batch, "--out", str(no_file)).returncode == 2
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "a[red].jsonl")
    assert fanout.run("results", batch, "--out", str(link)).returncode == 0
    named = fanout.run("results", batch, "--out", str(link.readlink()))
    assert (named.returncode, named.stdout) == (0, f"450 rows written to {link.readlink()}\n")
    assert (link.is_symlink(), len(link.read_text().splitlines())) == (True, 450)
    assert fanout.run("results", "test.echo/nope", "--out", str(out)).returncode == 2
    assert len(out.read_text().splitlines()) > 450
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".out.csv.")]
