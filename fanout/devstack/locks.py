"""Locks on files of the stack's folder: the kernel frees them when their holder ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fanout.errors import StackFailed

USERS = "users.lock"
"""Shared by everything that uses the servers; whoever gets it alone may end them."""
STARTING = "starting.lock"
"""Held by the one user who looks for a running stack and starts one if there is none."""
SUPERVISOR = "supervisor.lock"
"""Held by the supervisor for its life."""
SERVERS = "servers.lock"
"""Inherited by the servers and all their processes: free once the last of them is gone."""

_POLL_SECONDS = 0.02


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock, or None while another holds it. Children do not inherit it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # Somebody may have removed the folder meanwhile: a lock on a file that nobody else can open is none.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


@contextmanager
def locked(path: Path, *, shared: bool = False, patience_seconds: float = 60) -> Iterator[int]:
    """Holds the lock for the block. Raises StackFailed when others do not let go of it in time."""
    deadline = time.monotonic() + patience_seconds
    while (descriptor := try_lock(path, shared=shared)) is None:
        if time.monotonic() > deadline:
            raise StackFailed(path.parent, f"{path.name} was not free within {patience_seconds:g} s")
        time.sleep(_POLL_SECONDS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock alone. Creates nothing."""
    if not path.exists():
        return False
    descriptor = try_lock(path, shared=True)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
