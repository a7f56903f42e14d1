"""Ending a process that has used the Temporal SDK."""

import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends this process at once with `code`, after writing out logs and standard streams.

    Nothing else is cleaned up: no `finally`, no `atexit`, no other thread is waited for. So it is the last
    call of a main function that has closed all it opened. A closed pipe at the other end is no error.
    """
    # A process that has run a Temporal worker or client may die in the interpreter's own shutdown, by SIGABRT
    # or SIGSEGV, in about a quarter of all runs; this leaves the shutdown out.
    with suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # No stream at all, a closed one, or a pipe that nobody reads any more.
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
    os._exit(code)
