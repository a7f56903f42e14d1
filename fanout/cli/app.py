"""The command line's table of contents: every command, each with the options that all of them take."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from fanout.cli.batches import item, list_batches, status, verify
from fanout.cli.demo import demo
from fanout.cli.doctor import doctor
from fanout.cli.fleet import handlers, workers
from fanout.cli.migrating import migrate
from fanout.cli.options import GlobalOptions
from fanout.cli.purging import purge
from fanout.cli.results import results
from fanout.cli.running import Command, run_command
from fanout.cli.scheduling import apply_schedules, delete_schedule, list_schedules, preview_schedules
from fanout.cli.serve import serve
from fanout.cli.stacks import dev, stack
from fanout.cli.steering import cancel, pause, resume, retry
from fanout.cli.submit import submit
from fanout.cli.sweeping import sweep
from fanout.cli.trying import try_handler
from fanout.cli.watch import watch
from fanout.cli.why import why

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
    "why": why,
    "verify": verify,
    "doctor": doctor,
    "sweep": sweep,
    "purge": purge,
    "schedule apply": apply_schedules,
    "schedule list": list_schedules,
    "schedule preview": preview_schedules,
    "schedule delete": delete_schedule,
    "migrate": migrate,
    "serve": serve,
    "stack": stack,
    "dev": dev,
    "demo": demo,
}
GROUPS = {"schedule": "Schedules from a file: what a server has of them is brought to what the file declares."}
"""Commands whose names have two words, by the first of these."""
HELP = """Batches of work on Temporal and PostgreSQL: every item settles once, every batch closes.

BATCH is a batch id, or HANDLER/KEY for that key's newest batch.
"""
_EVERYWHERE = tuple(field.name for field in fields(GlobalOptions))


class OnceEach(TyperCommand):
    """A command that refuses a value given twice: the parser takes the last one, and drops the other without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the parser does, with that refusal."""
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            if (
                isinstance(option, TyperOption)
                and not option.multiple
                and not option.is_flag
                and given.count(option) > 1
            ):
                ctx.fail(f"{option.opts[0]} is given more than once")
        return super().parse_args(ctx, args)


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
    groups = {"": app}
    for words, command in COMMANDS.items():
        group, _, name = words.rpartition(" ")
        if group not in groups:
            groups[group] = typer.Typer(no_args_is_help=True, help=GROUPS[group], rich_markup_mode="markdown")
            app.add_typer(groups[group], name=group)
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        groups[group].command(name, cls=OnceEach, help=inspect.getdoc(command))(_with_signature(_runner(command), own))
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
