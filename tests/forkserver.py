"""Starts `worker.py` and `starter.py` as real processes without a second of imports for each.

A helper process imports once what both need, and forks. What runs then is the script from its first line, with
arguments, environment and standard streams of its own, in a session of its own, and it can be killed like any other.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, NoReturn

from fanout.devstack.children import tied_to_this_process

REPOSITORY = Path(__file__).parents[1]
IMPORTED = ("worker", "fanout.cli", "fanout.cli.app")
MESSAGE_BYTES = 1 << 18
# What an interpreter or its loader reads before the first line of a script: not for a fork.
EARLY = ("PYTHON", "LD_", "LC_", "LANG")


class Forked:
    """A started process, with that part of `subprocess.Popen` that tests use."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        """The exit code, or minus the number of the signal, if the end was seen."""

    def poll(self) -> int | None:
        """The exit code if it has ended."""
        self._server.read_endings()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code; raises `subprocess.TimeoutExpired`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and give_up is not None and time.monotonic() > give_up:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Does nothing once the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The helper process of this test process."""

    def __init__(self) -> None:
        # A number is used again once its process has ended.
        self._running: dict[int, Forked] = {}
        self._lock = Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.forkserver", str(theirs.fileno())]
            self._helper = subprocess.Popen(command, cwd=REPOSITORY, pass_fds=[theirs.fileno()])

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], streams: tuple[int, int, int]) -> Forked:
        """Starts a script of the repository with these arguments, in its root."""
        message = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
        with self._lock:
            socket.send_fds(self._socket, [message], streams)
            while "pid" not in (answer := self._read()):
                self._note(answer)
            started = self._running[answer["pid"]] = Forked(self, answer["pid"])
        return started

    def read_endings(self) -> None:
        """Takes in what the helper has told since."""
        with self._lock, suppress(BlockingIOError):
            while True:
                self._note(self._read(socket.MSG_DONTWAIT))

    def _read(self, flags: int = 0) -> dict[str, int]:
        message = self._socket.recv(MESSAGE_BYTES, flags)
        assert message, "the fork server has ended"
        found: dict[str, int] = json.loads(message)
        return found

    def _note(self, answer: dict[str, int]) -> None:
        self._running.pop(answer["ended"]).returncode = answer["code"]


@cache
def fork_server() -> ForkServer:
    """The one of this test process, started at first use; it ends with it."""
    return ForkServer()


def start_script(
    arguments: Sequence[str], environment: Mapping[str, str], streams: tuple[int, int, int]
) -> Forked | subprocess.Popen[bytes]:
    """Starts a script, by a fork where that makes no difference to it."""
    if any(environment.get(name) != os.environ.get(name) for name in environment if name.startswith(EARLY)):
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=tied_to_this_process(signal.SIGKILL),
        )
    return fork_server().start(arguments, environment, streams)


def run_script(
    arguments: Sequence[str], environment: Mapping[str, str], text: str | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end, with `text` on its standard input."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write((text or "").encode())
        stdin.seek(0)
        process = start_script(arguments, environment, (stdin.fileno(), stdout.fileno(), stderr.fileno()))
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(list(arguments), code, _text_of(stdout), _text_of(stderr))


def _text_of(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


def serve(connection: socket.socket) -> None:
    """The helper's main loop: starts what it is told to and tells who has ended, until the other end closes."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    tie = tied_to_this_process(signal.SIGKILL)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4096)
                tell_endings(connection)
            if connection in ready:
                message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
                if not message:
                    return
                pid = os.fork()
                if not pid:
                    tie()
                    become(json.loads(message), descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                connection.send(json.dumps({"pid": pid}).encode())


def tell_endings(connection: socket.socket) -> None:
    """Reaps every child that has ended."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            connection.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def become(told: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Turns a fresh fork into the script."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = told["arguments"]
    os._exit(run_main(sys.argv[0]))


def run_main(script: str) -> int:
    """Runs it as `__main__`; the code that an interpreter would end with."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    # A collection in a fork would copy the pages of everything that is imported.
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
