"""The command line, behind `starter.py` and the console script `fanout`; it needs the extra `cli`."""

import sys
from typing import NoReturn

from fanout.errors import MissingExtra
from fanout.exits import leave

try:
    from fanout.cli.app import run
except ModuleNotFoundError as _error:
    if _error.name not in ("typer", "rich"):
        raise
    run = None  # type: ignore[assignment]


def main() -> NoReturn:
    """Runs the command that the process was started with, and ends the process with its exit code."""
    if run is None:
        print(MissingExtra("The command line", "cli"), file=sys.stderr)
        leave(2)
    leave(run(sys.argv[1:]))
