"""Workers and the HTTP interface as children of a command, on a dev stack of its own."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from fanout.devstack import Stack
from fanout.devstack.children import tied_to_this_process
from fanout.devstack.logs import open_log, tail
from fanout.errors import InvalidRequest
from fanout.settings import process_environment

_REPOSITORY = Path(__file__).resolve().parents[2]


class StackChild:
    """A script of the repository that uses `stack` and nothing else. It dies with this process, also by SIGKILL.

    It has a session of its own, so that Ctrl-C reaches it only through its parent. Only the main thread may start it.
    """

    script: ClassVar[str]

    def __init__(
        self,
        stack: Stack,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        log: Path | None = None,
        open_files: Sequence[int] = (),
    ) -> None:
        script = _REPOSITORY / self.script
        if not script.is_file():
            raise InvalidRequest(f"this command needs the repository: {self.script} does not come with the package")
        self._log = log
        environment = {**stack.environment(process_environment()), "FANOUT_HOME": str(stack.home), **settings}
        with _output(log) as output:
            self._log_start = output.tell() if output is not None and log is not None else 0
            self._process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
                pass_fds=open_files,
                preexec_fn=tied_to_this_process(signal.SIGKILL),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def code(self) -> int | None:
        """How it ended, or None while it runs."""
        return self._process.poll()

    @property
    def words(self) -> str:
        """The end of its log, where it has one."""
        return "" if self._log is None else tail(self._log, self._log_start)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; that it is gone already is no error."""
        self._process.send_signal(number)

    def wait(self, patience_seconds: float | None = None) -> int | None:
        """How it ended, or None when it still runs after that time."""
        try:
            return self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """SIGKILL, and waits for the end."""
        self._process.kill()
        self._process.wait()


class WorkerChild(StackChild):
    """One `worker.py`."""

    script = "worker.py"


class ServerChild(StackChild):
    """One `starter.py`, which is to be given `serve` and its options."""

    script = "starter.py"


@contextmanager
def _output(log: Path | None) -> Iterator[IO[Any] | None]:
    if log is None:
        # Not stdout: that one carries the command's answer.
        yield sys.__stderr__
        return
    with open_log(log) as file:
        yield file
