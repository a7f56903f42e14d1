"""The benchmarks run, and their lines have the promised shape; how fast anything is, is not tested here."""

import json
import subprocess
import sys

from tests.support import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_a_benchmark_prints_one_line_of_json_and_nothing_else() -> None:
    ended = run("noop", "--pairs", "1", "--items", "500")
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    found = json.loads(line)
    assert (found["name"], found["items"], found["limit"], found["kept"]) == ("noop", 500, None, True)
    assert found["ratios"] == [found["ratio"]]
    assert found["spread"] == [found["ratio"], found["ratio"]]
    assert set(found["sides"]) == {"bare", "fanout"}
    assert all(len(side["seconds"]) == 1 and side["items_per_second"] > 0 for side in found["sides"].values())
    assert len(found["load_before"]) == len(found["load_after"]) == 3
    assert set(found["versions"]) == {"python", "temporalio", "asyncpg", "postgresql", "temporal_server"}
    assert {"compares", "concurrency", "cpus", "commit", "bare_form"} <= set(found)


def test_an_unknown_benchmark_is_refused() -> None:
    ended = run("fastest")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there are noop, slow, recovery, million, live" in ended.stderr
