"""Loads the SQL files: every statement is named after the one method that runs it."""

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_statements() -> Mapping[str, str]:
    """All statements of `fanout/store/sql`, by name; a name that stands twice is an error."""
    found: dict[str, str] = {}
    for file in sorted(files("fanout.store").joinpath("sql").iterdir(), key=lambda file: file.name):
        parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"the statement {name} stands twice, the second time in {file.name}")
            found[name] = text.strip().rstrip(";")
    return MappingProxyType(found)


STATEMENTS = load_statements()
