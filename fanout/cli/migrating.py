"""`migrate`: the schema and the search attributes, or the SQL for somebody else to run."""

from dataclasses import replace
from typing import Annotated, Any

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from fanout.cli.session import Session, reaching
from fanout.client import SEARCH_ATTRIBUTES, register_search_attributes
from fanout.devstack import Stack, join
from fanout.errors import ServerUnreachable
from fanout.servers import Servers, choose_servers
from fanout.store import MIGRATIONS, connect_pool, script
from fanout.store import migrate as migrate_schema

_KINDS = {1: "Text", 2: "Keyword", 3: "Int"}


async def migrate(
    session: Session,
    show: Annotated[bool, typer.Option("--print", help="Print the SQL and change nothing; uses no server.")] = False,
) -> None:
    """Brings the database's schema to this version, in one transaction, and registers the search attributes.

    Repeating it changes nothing. Whoever may not register search attributes is told the commands that do it.
    """
    if show:
        session.output.write("\n".join(script(migration) for migration in MIGRATIONS))
        return
    with join(session.settings) as stack:
        servers, missing = _choose(session, stack)
        answer = await apply_schema(servers)
        _tell(session, answer)
        if missing is not None:
            raise missing
        await _register(session, servers)


def _choose(session: Session, stack: Stack | None) -> tuple[Servers, ServerUnreachable | None]:
    """The servers; where nothing names a Temporal server, the database alone and that error."""
    options = session.options.servers
    try:
        servers = choose_servers(session.settings, stack, options)
    except ServerUnreachable as error:
        if error.server != "Temporal":
            raise
        servers = choose_servers(session.settings, stack, replace(options, address="none"))
        session.output.note(servers.lines[0])
        return servers, error
    session.output.note(*servers.lines)
    return servers, None


async def apply_schema(servers: Servers) -> dict[str, Any]:
    """Migrates the database: what changed, as `migrate --json` says it."""
    with reaching(servers):
        pool = await connect_pool(servers.database_url, purpose="migrate", size=1, chosen_by=servers.database_chosen_by)
        try:
            before, after, applied = await migrate_schema(pool)
        finally:
            await pool.close()
    return {"from": before, "to": after, "applied": applied}


def _tell(session: Session, answer: dict[str, Any]) -> None:
    if session.output.as_json:
        session.output.emit(answer)
    elif answer["applied"]:
        session.output.show(f"the schema is at version {answer['to']} now: {', '.join(answer['applied'])}")
    else:
        session.output.show(f"the schema is at version {answer['to']} already")


async def _register(session: Session, servers: Servers) -> None:
    temporal = await servers.connect_temporal()
    try:
        await register_search_attributes(temporal)
    except RPCError as error:
        session.output.note(
            f"the search attributes were not registered ({error.message or error.status.name}); who may, runs:",
            *_commands(temporal),
        )


def _commands(temporal: Client) -> list[str]:
    create = f"temporal operator search-attribute create --namespace {temporal.namespace}"
    return [f"  {create} --name {name} --type {_KINDS[kind]}" for name, kind in SEARCH_ATTRIBUTES.items()]
