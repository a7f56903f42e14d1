"""The process that owns a folder's servers, and ends them once nobody uses them.

    python -m fanout.devstack.supervisor HOME POSTGRES_BIN TEMPORAL

The front that is started so ends with 0 as soon as both servers answer and `stack.json` says where, and with
1 if one never does; the supervisor itself goes on in the background, all of its work in its main thread.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

from fanout.devstack.children import Child
from fanout.devstack.locks import SERVERS, SUPERVISOR, USERS, locked, try_lock
from fanout.devstack.postgres import Postgres
from fanout.devstack.stack import STACK_FILE, Stack
from fanout.devstack.temporal import Temporal
from fanout.errors import StackFailed

_ANSWER_SECONDS = 45.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_WATCH_SECONDS = 0.1
_STARTS = 3


class Server(Protocol):
    """What the supervisor needs of each server."""

    name: str
    ports: list[int]

    def start(self, preferred_ports: list[int]) -> Child:
        """Starts it, on these ports where they are free."""

    def answers(self, child: Child) -> bool:
        """Whether it is ready for clients."""


class Supervisor:
    """Both servers of a folder, as direct children of this process."""

    def __init__(self, home: Path, postgres_bin: Path, temporal: Path, inherited: int) -> None:
        self._home = home
        self._postgres = Postgres(home, postgres_bin, inherited)
        self._temporal = Temporal(home, temporal, inherited)
        # Temporal first: it starts up while PostgreSQL's data folder is made.
        self._servers: list[Server] = [self._temporal, self._postgres]
        self._children: dict[str, Child] = {}
        self._listed_as = 0

    def start(self) -> None:
        """Returns once both servers answer and `stack.json` says where. Raises StackFailed."""
        ports = self._last_ports()
        for server in self._servers:
            self._children[server.name] = server.start(ports.get(server.name, []))
        deadline = time.monotonic() + _ANSWER_SECONDS
        for server in self._servers:
            self._wait_for(server, deadline)
        self._keep_ports()
        stack = Stack(
            database_url=self._postgres.url,
            temporal_address=self._temporal.address,
            ui_url=self._temporal.ui_url,
            home=self._home,
            supervisor_pid=os.getpid(),
        )
        self._listed_as = stack.write()

    def watch(self) -> str:
        """Returns, with the reason, as soon as the servers have to end."""
        while True:
            time.sleep(_WATCH_SECONDS)
            for name, child in self._children.items():
                if child.code is not None:
                    return f"{name} ended with {child.code}:\n{child.words}"
            if not self._is_listed():
                return f"{STACK_FILE} is gone or another's"
            # Kept until this process ends: a user who comes meanwhile waits, and then finds no stack.
            if try_lock(self._home / USERS) is not None:
                return "no user is left"

    def stop(self) -> None:
        """Ends both servers, cleanly if they can within ten seconds; nobody finds them meanwhile."""
        if self._is_listed():
            (self._home / STACK_FILE).unlink()
        for child in self._children.values():
            child.ask_to_stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children.values():
            child.wait(max(0, deadline - time.monotonic()))

    def _wait_for(self, server: Server, deadline: float) -> None:
        starts = 1
        while not server.answers(child := self._children[server.name]):
            if time.monotonic() > deadline:
                raise StackFailed(self._home, f"{server.name} does not answer:\n{child.words}")
            if child.code is not None and starts == _STARTS:
                raise StackFailed(self._home, f"{server.name} ended with {child.code}:\n{child.words}")
            if child.code is not None:
                # Somebody may have been quicker to take a port that was free when we looked.
                self._children[server.name] = server.start([])
                starts += 1
            time.sleep(_POLL_SECONDS)

    def _is_listed(self) -> bool:
        with suppress(FileNotFoundError):
            return (self._home / STACK_FILE).stat().st_ino == self._listed_as
        return False

    def _last_ports(self) -> dict[str, list[int]]:
        """The ports of the last run, so that an address stays the same where it can."""
        with suppress(FileNotFoundError, ValueError):
            found: dict[str, list[int]] = json.loads((self._home / "ports.json").read_text())
            return found
        return {}

    def _keep_ports(self) -> None:
        (self._home / "ports.json").write_text(json.dumps({each.name: each.ports for each in self._servers}))


def supervise(home: Path, postgres_bin: Path, temporal: Path, ready: Callable[[], None]) -> int:
    """Runs the folder's servers until nobody uses them. At most one process a folder is in here at a time."""
    with locked(home / SUPERVISOR), locked(home / SERVERS) as inherited:
        supervisor = Supervisor(home, postgres_bin, temporal, inherited)
        try:
            supervisor.start()
            ready()
            _log("both servers answer")
            _log(f"ending: {supervisor.watch()}")
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            supervisor.stop()
    return 0


def main(arguments: list[str]) -> int:
    """The front: forks the supervisor, and tells how its start went."""
    home, postgres_bin, temporal = map(Path, arguments)
    receiver, sender = os.pipe()
    if os.fork() != 0:
        os.close(sender)
        return 0 if os.read(receiver, 1) else 1
    os.close(receiver)
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _leave)

    def ready() -> None:
        with suppress(BrokenPipeError):
            os.write(sender, b"1")
        os.close(sender)

    try:
        return supervise(home, postgres_bin, temporal, ready)
    except StackFailed as error:
        _log(error.detail)
        return 1


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    _log("ending: told to")
    sys.exit(0)


def _log(text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
