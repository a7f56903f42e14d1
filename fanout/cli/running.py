"""Runs one command and gives its end an exit code."""

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from fanout.cli import interrupts
from fanout.cli.options import GlobalOptions
from fanout.cli.output import Output, OutputClosed
from fanout.cli.session import Session
from fanout.encoding import is_text
from fanout.errors import FanoutError, InvalidRequest, SchemaMismatch, ServerUnreachable, StackFailed
from fanout.logs import LogSetup
from fanout.settings import Settings

DONE = 0
NOT_COMPLETED = 1
WRONG_CALL = 2
UNREACHABLE = 3
FAULT = 70
INTERRUPTED = 130

Command = Callable[..., Any]


def run_command(command: Command, options: GlobalOptions, given: Mapping[str, Any]) -> int:
    """Runs `command(session, **given)`, and answers its exit code; whatever goes wrong is said on stderr."""
    output = Output.standard(bool(options.as_json))
    interrupts.raise_at_signals()
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
        answer = interrupts.run(answer)
    return DONE if answer is None else int(answer)


def _interrupted(session: Session | None) -> str:
    if session is None or session.goes_on is None:
        return "interrupted"
    return f"interrupted; the batch goes on: `watch {session.goes_on}` shows it, `cancel {session.goes_on}` ends it"


def _refuse_bad_text(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if not is_text(str(value)):
            raise InvalidRequest(f"{name.replace('_', '-')}: the text is not UTF-8")
