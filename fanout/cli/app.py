"""The command line's table of contents: every command, each with the options that all of them take."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import typer

from fanout.cli.batches import item, list_batches, status, verify
from fanout.cli.demo import demo
from fanout.cli.fleet import handlers, workers
from fanout.cli.migrating import migrate
from fanout.cli.options import GlobalOptions
from fanout.cli.results import results
from fanout.cli.running import Command, run_command
from fanout.cli.serve import serve
from fanout.cli.stacks import dev, stack
from fanout.cli.steering import cancel, pause, resume, retry
from fanout.cli.submit import submit
from fanout.cli.sweeping import sweep
from fanout.cli.trying import try_handler
from fanout.cli.watch import watch

COMMANDS: dict[str, Command] = {
    "submit": submit,
    "status": status,
    "list": list_batches,
    "watch": watch,
    "results": results,
    "item": item,
    "cancel": cancel,
    "pause": pause,
    "resume": resume,
    "retry": retry,
    "workers": workers,
    "handlers": handlers,
    "try": try_handler,
    "verify": verify,
    "sweep": sweep,
    "migrate": migrate,
    "serve": serve,
    "stack": stack,
    "dev": dev,
    "demo": demo,
}
HELP = """Batches of work on Temporal and PostgreSQL: every item settles once, every batch closes.

BATCH is a batch id, or HANDLER/KEY for that key's newest batch.
"""
_EVERYWHERE = tuple(field.name for field in fields(GlobalOptions))


def run(arguments: Sequence[str]) -> int:
    """Runs the command that `arguments` name, and answers its exit code."""
    try:
        build()(list(arguments), prog_name="starter.py")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    return 0


def build() -> typer.Typer:
    """The application."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        help=HELP,
    )
    app.callback()(_with_signature(_keep, ()))
    for name, command in COMMANDS.items():
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        app.command(name, help=inspect.getdoc(command))(_with_signature(_runner(command), own))
    return app


def _keep(context: typer.Context, **given: Any) -> None:
    context.obj = GlobalOptions(**given)


def _runner(command: Command) -> Callable[..., None]:
    def run_it(context: typer.Context, **given: Any) -> None:
        options = GlobalOptions(**{name: given.pop(name) for name in _EVERYWHERE}).over(context.obj)
        raise typer.Exit(run_command(command, options, given))

    return run_it


def _with_signature(function: Callable[..., None], own: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """The function with the parameters that typer is to see: `own`, and those of every command."""

    @functools.wraps(function)
    def shown(*positional: Any, **named: Any) -> None:
        function(*positional, **named)

    everywhere = inspect.signature(GlobalOptions, eval_str=True).parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *own, *everywhere]
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    shown.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
    return shown
