"""The servers' log files: appended to from run to run, begun anew once large."""

from pathlib import Path
from typing import BinaryIO

from fanout.errors import shorten

_LARGE_BYTES = 1_048_576
_TAIL_BYTES = 8_192


def open_log(path: Path) -> BinaryIO:
    """Opens a log to write at its end; a large one loses what it held."""
    large = path.exists() and path.stat().st_size > _LARGE_BYTES
    return path.open("wb" if large else "ab")


def tail(path: Path, since: int) -> str:
    """The last 20 lines among those written after byte `since`."""
    with path.open("rb") as log:
        log.seek(max(since, path.stat().st_size - _TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()[-20:]
    return "\n".join(shorten(line, 400) for line in lines)
