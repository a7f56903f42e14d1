"""`stack` and `dev`: real servers from Python packages, for as long as the command runs."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.text import Text

from fanout.cli import interrupts
from fanout.cli.crew import ServerChild, WorkerChild
from fanout.cli.local import local_modules
from fanout.cli.migrating import apply_schema
from fanout.cli.serve import PORT
from fanout.cli.session import Session
from fanout.cli.views import facts
from fanout.devstack import Stack, running, use
from fanout.devstack.locks import USERS, is_held, try_lock
from fanout.devstack.ports import HOST, listen
from fanout.errors import StackFailed
from fanout.servers import ServerOptions, Servers, choose_servers
from fanout.settings import Settings

POLL_SECONDS = 0.2
LET_GO_SECONDS = 1.0
END_SECONDS = 15.0
DRAIN_SECONDS = 15.0
"""What a drain may take beyond the grace time before the worker is killed."""
ONLY_STACK = ServerOptions(only_stack=True)


def stack(session: Session) -> int:
    """Runs the dev stack's servers until Ctrl-C: PostgreSQL with Fanout's schema, and Temporal with its Web UI.

    Ignores every setting that points at another server. The data stay in FANOUT_HOME, .fanout by default.
    """
    session.options.refuse_servers("stack")
    with own_stack(session.settings) as found:
        interrupts.run(apply_schema(stack_servers(session.settings, found)))
        session.output.emit(addresses(found))
        session.output.note("the stack is up until Ctrl-C; other commands in this folder find it by themselves")
        try:
            while True:
                _watch(session.settings, found)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return 0


def dev(session: Session) -> int:
    """Runs the dev stack, one worker and the HTTP interface until Ctrl-C, which drains the worker first.

    The worker runs FANOUT_HANDLERS, by default the example handlers. Settings that point at a real server are ignored.
    """
    session.options.refuse_servers("dev")
    with own_stack(session.settings) as found, listen(PORT) as listener:
        interrupts.run(apply_schema(stack_servers(session.settings, found)))
        _tell(session, found, f"http://{HOST}:{listener.getsockname()[1]}")
        serving = ["serve", "--fd", str(listener.fileno()), "--json"]
        with (
            WorkerChild(found, ["--handlers", *local_modules(session.settings)], {}) as worker,
            ServerChild(found, serving, {}, open_files=[listener.fileno()]) as server,
        ):
            # The server has it alone: once that has ended nobody is kept waiting.
            listener.close()
            try:
                while worker.code is None and server.code is None:
                    _watch(session.settings, found)
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                return _drain(session, worker)
            if worker.code is not None:
                session.output.note(f"the worker ended by itself, with {worker.code}")
                return worker.code
            session.output.note(f"the HTTP interface ended by itself, with {server.code}")
            _drain(session, worker)
            return server.code or 0


@contextmanager
def own_stack(settings: Settings) -> Iterator[Stack]:
    """The folder's stack; unless somebody else uses it too, its servers are gone when the block has ended."""
    found = None
    try:
        with use(settings) as found:
            yield found
    finally:
        if found is not None:
            _wait_for_end(found)


def _wait_for_end(found: Stack) -> None:
    """Returns as soon as the supervisor and its servers are gone, or after a moment when others use them."""
    started = time.monotonic()
    patience = LET_GO_SECONDS
    while _is_alive(found.supervisor_pid) and time.monotonic() < started + patience:
        patience = END_SECONDS if _is_left(found.home) else patience
        time.sleep(POLL_SECONDS / 4)


def _is_left(home: Path) -> bool:
    """Whether nobody uses the servers any more, or the supervisor holds that lock alone as it ends them."""
    with suppress(FileNotFoundError):
        descriptor = try_lock(home / USERS)
        if descriptor is None:
            return is_held(home / USERS)
        os.close(descriptor)
    return True


def _is_alive(pid: int) -> bool:
    try:
        # Empty for a process that is dead, where nobody has asked yet how it ended.
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def stack_servers(settings: Settings, found: Stack) -> Servers:
    """The stack's two servers, whatever the environment says."""
    return choose_servers(settings, found, ONLY_STACK)


def addresses(found: Stack) -> dict[str, Any]:
    """Where the servers are; the database's URL holds its password."""
    return {"database_url": found.database_url, "temporal_address": found.temporal_address, "ui_url": found.ui_url}


def address_rows(found: Stack) -> list[tuple[str, Text]]:
    """The addresses for people."""
    names = {"database_url": "PostgreSQL", "temporal_address": "Temporal", "ui_url": "Web UI"}
    return [(names[name], Text(value, overflow="fold")) for name, value in addresses(found).items()]


def _watch(settings: Settings, found: Stack) -> None:
    if running(settings) is None:
        raise StackFailed(found.home, "its servers have ended; supervisor.log in that folder says why")


def _tell(session: Session, found: Stack, http_url: str) -> None:
    if session.output.as_json:
        session.output.emit({**addresses(found), "http_url": http_url})
    else:
        session.output.show(facts([*address_rows(found), ("HTTP", Text(http_url))]))
    session.output.note("all of it is up until Ctrl-C; other commands in this folder find it by themselves")


def _drain(session: Session, worker: WorkerChild) -> int:
    session.output.note("draining the worker; Ctrl-C again ends it now")
    worker.send(signal.SIGTERM)
    try:
        worker.wait(session.settings.grace_seconds + DRAIN_SECONDS)
    except KeyboardInterrupt:
        worker.kill()
    return 0
