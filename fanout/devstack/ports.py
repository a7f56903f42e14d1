"""Ports of 127.0.0.1."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice, repeat
from pathlib import Path

HOST = "127.0.0.1"
_LISTENING = "0A"
_BACKLOG = 2_048


def free_ports(preferred: list[int], count: int) -> list[int]:
    """As many different ports that nobody listens on now, the preferred ones where they are still free."""
    held = [_bind(port) for port in islice(chain(preferred, repeat(0)), count)]
    try:
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()


def _bind(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        # A port whose last connections are still closing is free for a server that asks like this.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(port != 0))
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        return _bind(0)
    return listener


def listen(preferred: int) -> socket.socket:
    """Listens on that port, or on any that is free where another listens there; nobody can take it in between."""
    listener = _bind(preferred)
    try:
        listener.listen(_BACKLOG)
    except OSError:
        # Two may bind a port at once, of which the first to listen has it.
        listener.close()
        return listen(0)
    return listener


def listens(pid: int, port: int) -> bool:
    """Whether that very process listens on the port: another's server must not be taken for ours."""
    connections = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    sockets = {
        f"socket:[{fields[9]}]"
        for fields in connections
        if fields[1].endswith(f":{port:04X}") and fields[3] == _LISTENING
    }
    return not sockets.isdisjoint(_open_files(pid))


def _open_files(pid: int) -> Iterator[str]:
    # The process may end meanwhile, and close files at any time.
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                yield os.readlink(f"/proc/{pid}/fd/{descriptor}")
