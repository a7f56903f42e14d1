"""The options that every command takes, before or after its name: declared once, here."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer

from fanout.errors import InvalidRequest
from fanout.logs import LogFormat, LogLevel
from fanout.servers import ServerOptions

_PANEL = "Everywhere"


@dataclass(frozen=True)
class GlobalOptions:
    """What stands before or after a command; None where the caller leaves the choice to the environment."""

    as_json: Annotated[
        bool | None,
        typer.Option("--json", help="JSON alone on stdout, one object a line.", rich_help_panel=_PANEL),
    ] = None
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="PostgreSQL to use.", rich_help_panel=_PANEL),
    ] = None
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Temporal to use.", rich_help_panel=_PANEL),
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="Temporal namespace.", rich_help_panel=_PANEL),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile of Temporal's file.", rich_help_panel=_PANEL),
    ] = None
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", help="What is logged to stderr; warning by default.", rich_help_panel=_PANEL),
    ] = None
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="How it is logged; text by default.", rich_help_panel=_PANEL),
    ] = None

    def over(self, outer: "GlobalOptions | None") -> "GlobalOptions":
        """These options, and where one is not given here the one that stands before the command."""
        if outer is None:
            return self
        both = ((field.name, getattr(self, field.name)) for field in fields(self))
        return GlobalOptions(**{name: getattr(outer, name) if value is None else value for name, value in both})

    @property
    def servers(self) -> ServerOptions:
        """The servers that are named here."""
        return ServerOptions(self.database_url, self.address, self.namespace, self.profile)

    def refuse_servers(self, command: str) -> None:
        """Raises InvalidRequest where a server is named for a command that only ever uses a stack of its own."""
        for name in ("database_url", "address", "namespace", "profile"):
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise InvalidRequest(f"{command} always uses a dev stack of its own: --{option} does not apply")
