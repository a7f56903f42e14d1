"""A running stack, as `stack.json` in its folder describes it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

STACK_FILE = "stack.json"
SERVER_VARIABLES = frozenset({"FANOUT_DATABASE_URL", "FANOUT_LISTEN_URL", "FANOUT_UI_URL"})


@dataclass(frozen=True)
class Stack:
    """The addresses of a running stack; the database URL holds its password."""

    database_url: str = field(repr=False)
    temporal_address: str
    ui_url: str
    home: Path
    supervisor_pid: int

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` for a child process that is to use this stack and nothing else.

        Every setting that points at a real server is gone, and the SDK's profile files are not looked for.
        """
        return {
            **without_servers(base),
            "FANOUT_DATABASE_URL": self.database_url,
            "TEMPORAL_ADDRESS": self.temporal_address,
            "FANOUT_UI_URL": self.ui_url,
        }

    @classmethod
    def read(cls, home: Path) -> Self | None:
        """What the folder's file says, or None without one. It does not prove that the stack is alive."""
        try:
            return cls(home=home, **json.loads((home / STACK_FILE).read_bytes()))
        except FileNotFoundError:
            return None

    def write(self) -> int:
        """Puts the file in place in one step, readable by its owner alone; returns its inode."""
        text = json.dumps({name: value for name, value in vars(self).items() if name != "home"}, indent=2)
        draft = self.home / f"{STACK_FILE}.new"
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text + "\n")
        inode = draft.stat().st_ino
        draft.replace(self.home / STACK_FILE)
        return inode


def without_servers(base: Mapping[str, str]) -> dict[str, str]:
    """`base` without anything that PostgreSQL, Temporal or Fanout would take for a server's address."""
    kept = {
        name: value
        for name, value in base.items()
        if name not in SERVER_VARIABLES and not name.startswith(("TEMPORAL_", "PG"))
    }
    return {**kept, "TEMPORAL_CONFIG_FILE": os.devnull}
