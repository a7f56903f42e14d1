"""A TCP proxy between a client and a server, whose line can be cut, stalled, robbed of its answers, or laid anew."""

import asyncio
import socket
import struct
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self, cast

HOST = "127.0.0.1"
BACKLOG = 1_024
AT_ONCE = struct.pack("ii", 1, 0)


class Mode(Enum):
    """What the line does with bytes and with new connections."""

    OPEN = "open"
    CUT = "cut"
    STALLED = "stalled"
    MUTE = "mute"


class Line:
    """Listens on a port of its own, in the running loop, and passes everything on to `target`.

    Use it as a context manager: at the end of the block its port and all its connections are gone.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.mode = Mode.OPEN
        self._listener = socket.socket()
        self._connections: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    async def __aenter__(self) -> Self:
        self._listener.setblocking(False)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, 0))
            # Bound by its number: a port that the kernel chose is given up whenever the socket stops listening.
            self._listener.bind(probe.getsockname())
        self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deafen()
        self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.reset_all()
        await self._empty.wait()

    @property
    def port(self) -> int:
        """Where it listens, for its whole life."""
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """Where it listens, as clients want it."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections it has now."""
        return len(self._connections)

    def cut(self) -> None:
        """Resets every connection and refuses new ones."""
        self.mode = Mode.CUT
        self._deafen()
        self.reset_all()

    def stall(self) -> None:
        """Passes nothing on, in neither direction; takes new connections, and leaves them without an answer."""
        self._change(Mode.STALLED)

    def drop_replies(self) -> None:
        """Passes on what clients say and swallows what servers answer: work is done, and nobody learns of it."""
        self._change(Mode.MUTE)

    def restore(self) -> None:
        """Passes everything on again; connections that lost an answer are reset."""
        for connection in list(self._connections):
            if connection.robbed:
                connection.reset()
        self._change(Mode.OPEN)

    def reset_all(self) -> None:
        """Resets every connection there is; new ones go as before."""
        for connection in list(self._connections):
            connection.reset()

    def retarget(self, host: str, port: int) -> None:
        """New connections go to another server; those that are open stay where they are."""
        self.target = (host, port)

    def forget(self, connection: "Connection") -> None:
        """Both of its ends are closed."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def _change(self, mode: Mode) -> None:
        was, self.mode = self.mode, mode
        if was is Mode.CUT:
            self._listen()
        for connection in list(self._connections):
            connection.follow()

    def _listen(self) -> None:
        self._listener.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _deafen(self) -> None:
        """The port stays ours, so that nobody else gets it, and refuses: the kernel resets what had not been taken."""
        if asyncio.get_running_loop().remove_reader(self._listener):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            accepted, _ = self._listener.accept()
            accepted.setblocking(False)
            connection = Connection(self)
            self._connections[connection] = None
            self._empty.clear()
            task = asyncio.get_running_loop().create_task(connection.open(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class Connection:
    """A client's socket and the server's that belongs to it."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.robbed = False
        self._near = End(self)
        self._far = End(self)
        self._was_reset = False
        self._awake = asyncio.Event()

    async def open(self, accepted: socket.socket) -> None:
        """Connects to the line's target as soon as the line passes anything on."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._near, accepted)
            while self.line.mode is Mode.STALLED:
                self._awake.clear()
                await self._awake.wait()
            if not self._was_reset:
                await loop.create_connection(lambda: self._far, *self.line.target)
        except OSError:
            self.reset()
        except asyncio.CancelledError:
            self.reset()
            accepted.close()
            raise
        if self._was_reset:
            self.reset()
        self.follow()

    def follow(self) -> None:
        """Reads or does not read, as the line's mode and the buffers of the other end want it."""
        self._awake.set()
        for end, other in ((self._near, self._far), (self._far, self._near)):
            end.read_if(self.line.mode is not Mode.STALLED and other.writable)

    def passed(self, end: "End", data: bytes) -> None:
        """One end said something."""
        if end is self._far and self.line.mode is Mode.MUTE:
            self.robbed = True
            return
        self._other(end).write(data)

    def lost(self, end: "End", error: Exception | None) -> None:
        """One end is closed: so must be the other."""
        other = self._other(end)
        other.close(at_once=error is not None or self._was_reset)
        if other.gone:
            self.line.forget(self)

    def reset(self) -> None:
        """Both sides learn at once that the connection is broken."""
        self._was_reset = True
        self._awake.set()
        self._near.close(at_once=True)
        self._far.close(at_once=True)
        if self._near.gone and self._far.gone:
            self.line.forget(self)

    def _other(self, end: "End") -> "End":
        return self._far if end is self._near else self._near


class End(asyncio.Protocol):
    """One of the two sockets of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._full = False

    @property
    def gone(self) -> bool:
        """Whether it has no socket, not yet or no more."""
        return self._transport is None

    @property
    def writable(self) -> bool:
        """Whether it takes more bytes."""
        return self._transport is not None and not self._full

    def read_if(self, wanted: bool) -> None:
        """Reads on, or lets the sender wait."""
        if self._transport is None or self._transport.is_closing():
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Sends."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self, *, at_once: bool) -> None:
        """Closes after the last byte, or at once and with a reset."""
        if self._transport is None:
            return
        if not at_once:
            self._transport.close()
            return
        with suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._connection.lost(self, error)

    def data_received(self, data: bytes) -> None:
        self._connection.passed(self, data)

    def pause_writing(self) -> None:
        self._full = True
        self._connection.follow()

    def resume_writing(self) -> None:
        self._full = False
        self._connection.follow()
