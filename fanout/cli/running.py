"""Runs one command and gives its end an exit code."""

import asyncio
import inspect
import signal
import traceback
from collections.abc import Callable, Coroutine, Mapping
from types import FrameType
from typing import Any, NoReturn, TypeVar

from fanout.cli.options import GlobalOptions
from fanout.cli.output import Output, OutputClosed
from fanout.cli.session import Session
from fanout.errors import FanoutError, InvalidRequest, SchemaMismatch, ServerUnreachable, StackFailed
from fanout.logs import LogSetup
from fanout.settings import Settings

DONE = 0
NOT_COMPLETED = 1
WRONG_CALL = 2
UNREACHABLE = 3
FAULT = 70
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)
DEAF_SECONDS = 0.5
"""After so long a loop that has not heard of a signal is taken for one that reads from a silent pipe."""

Command = Callable[..., Any]
Answer = TypeVar("Answer")


def run_command(command: Command, options: GlobalOptions, given: Mapping[str, Any]) -> int:
    """Runs `command(session, **given)`, and answers its exit code; whatever goes wrong is said on stderr."""
    output = Output.standard(bool(options.as_json))
    for number in (*SIGNALS, signal.SIGALRM):
        signal.signal(number, _interrupt)
    session = None
    try:
        _refuse_bad_text(given)
        LogSetup(options.log_level or "warning", options.log_format or "text").apply()
        session = Session(options, Settings.from_environment(), output)
        code = _call(command, session, given)
        output.flush()
        return code
    except OutputClosed:
        return DONE
    except KeyboardInterrupt:
        output.note(_interrupted(session))
        return INTERRUPTED
    except FanoutError as error:
        output.note(f"{error.code}: {error}")
        return UNREACHABLE if isinstance(error, ServerUnreachable | StackFailed | SchemaMismatch) else WRONG_CALL
    except Exception:
        output.note(traceback.format_exc())
        return FAULT


def _call(command: Command, session: Session, given: Mapping[str, Any]) -> int:
    answer = command(session, **given)
    if inspect.iscoroutine(answer):
        answer = run_async(answer)
    return DONE if answer is None else int(answer)


def run_async(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs it to its end; a signal cancels it, and is raised as KeyboardInterrupt once it has ended."""
    try:
        return asyncio.run(_cancelled_by_signals(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number in SIGNALS:
            signal.signal(number, _interrupt)


async def _cancelled_by_signals(work: Coroutine[Any, Any, Answer]) -> Answer:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        task.cancel()

    def on_signal(number: int, frame: FrameType | None) -> None:
        # Nothing is raised here: in the middle of asyncpg's compiled code that ends the process by SIGSEGV.
        if not loop.is_closed():
            loop.call_soon_threadsafe(cancel)
        signal.setitimer(signal.ITIMER_REAL, DEAF_SECONDS)

    for number in SIGNALS:
        signal.signal(number, on_signal)
    return await work


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _interrupted(session: Session | None) -> str:
    if session is None or session.goes_on is None:
        return "interrupted"
    return f"interrupted; the batch goes on: `watch {session.goes_on}` shows it, `cancel {session.goes_on}` ends it"


def _refuse_bad_text(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        try:
            str(value).encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"{name.replace('_', '-')}: the text is not UTF-8") from None
