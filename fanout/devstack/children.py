"""Server processes that cannot outlive the supervisor."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from fanout.devstack.logs import open_log, tail

_PR_SET_PDEATHSIG = 1


class Child:
    """A direct child of this process: when this process dies, the kernel sends it `death_signal`.

    The kernel watches the thread that starts the child, so only the main thread may do so. The child and
    all of its own children inherit the descriptor `inherited`.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        inherited: int,
        death_signal: signal.Signals,
        stop_signal: signal.Signals,
    ) -> None:
        self._log = log
        self._stop_signal = stop_signal
        with open_log(log) as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[inherited],
                preexec_fn=tied_to_this_process(death_signal),
            )

    @property
    def pid(self) -> int:
        """The process id: of the server itself, as every program before it replaces itself."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, or None while it runs."""
        return self._process.poll()

    @property
    def words(self) -> str:
        """The last lines that it logged."""
        return tail(self._log, self._log_start)

    def ask_to_stop(self) -> None:
        """Sends the signal for a clean end; does not wait."""
        self._process.send_signal(self._stop_signal)

    def wait(self, patience_seconds: float) -> int:
        """How it ended, which it does by force once the time is over."""
        try:
            return self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def tied_to_this_process(death_signal: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`, for the main thread: the child gets `death_signal` as soon as this process is gone."""
    parent = os.getpid()
    # Loaded here: between fork and exec it is too late to load anything.
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        # The parent may have died before the tie was made.
        if os.getppid() != parent:
            os._exit(1)

    return tie
