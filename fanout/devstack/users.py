"""Using a stack: start or join it, and keep it from ending meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fanout.devstack.locks import STARTING, SUPERVISOR, USERS, is_held, locked
from fanout.devstack.logs import open_log, tail
from fanout.devstack.programs import Programs, find_programs
from fanout.devstack.stack import Stack, without_servers
from fanout.errors import StackFailed
from fanout.settings import Settings, process_environment

# Longer than the supervisor takes to give up.
_START_SECONDS = 180


@contextmanager
def use(settings: Settings) -> Iterator[Stack]:
    """Starts the folder's stack, or joins the one that runs; it stays up at least until the block ends.

    However many processes do this at once, they get one stack. If this process dies the kernel counts it out.
    Raises MissingExtra without the packages, StackFailed when a server does not start.
    """
    home = settings.home.resolve()
    if sys.platform != "linux":
        raise StackFailed(home, "it needs Linux; set FANOUT_DATABASE_URL and TEMPORAL_ADDRESS to servers instead")
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / USERS, shared=True):
        with locked(home / STARTING, patience_seconds=_START_SECONDS):
            stack = _alive(home) or _start(home, find_programs(settings))
        yield stack


@contextmanager
def join(settings: Settings) -> Iterator[Stack | None]:
    """The folder's stack, which then stays up until the block ends, or None. Starts and creates nothing."""
    home = settings.home.resolve()
    if not is_held(home / SUPERVISOR):
        yield None
        return
    with locked(home / USERS, shared=True):
        yield _alive(home)


def running(settings: Settings) -> Stack | None:
    """The folder's stack if one runs now; nothing keeps it from ending. Starts and creates nothing."""
    return _alive(settings.home.resolve())


def _alive(home: Path) -> Stack | None:
    return Stack.read(home) if is_held(home / SUPERVISOR) else None


def _start(home: Path, programs: Programs) -> Stack:
    """Runs the supervisor's front, which ends as soon as both servers answer, or one never will."""
    command = [sys.executable, "-m", "fanout.devstack.supervisor"]
    with open_log(home / "supervisor.log") as log:
        log_start = log.tell()
        front = subprocess.run(
            [*command, str(home), str(programs.postgres_bin), str(programs.temporal)],
            # Where `-m` finds this very package, installed or not.
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=without_servers(process_environment()),
            start_new_session=True,
            check=False,
        )
    stack = _alive(home) if front.returncode == 0 else None
    if stack is None:
        raise StackFailed(home, tail(home / "supervisor.log", log_start))
    return stack
