"""Items from the names of files."""

import glob
import os
from pathlib import Path

from fanout.client.items import Item
from fanout.encoding import is_text
from fanout.errors import InvalidItem, InvalidRequest, shorten


def match_files(pattern: str) -> list[Item]:
    """As `find_files`; raises InvalidRequest without any match."""
    found = find_files(pattern)
    if not found:
        raise InvalidRequest(f"--glob {shorten(pattern)!r} matches no file")
    return found


def find_files(pattern: str) -> list[Item]:
    """One item for each file that the pattern matches, sorted: its absolute path is the key, and the payload's `path`.

    `**` reaches into all folders below; folders themselves are left out.
    """
    found = glob.iglob(os.path.expanduser(pattern), recursive=True)
    paths = sorted({os.path.abspath(path) for path in found if Path(path).is_file()})
    return [_file(position, path) for position, path in enumerate(paths)]


def _file(position: int, path: str) -> Item:
    if not is_text(path):
        raise InvalidItem(position, None, f"the path {shorten(ascii(os.fsencode(path)))} is not UTF-8")
    return Item({"path": path}, path)
