"""`submit`: items from files into a batch."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from fanout.cli.arguments import HandlerName, duration
from fanout.cli.local import local_handlers
from fanout.cli.queries import read_query
from fanout.cli.session import Session
from fanout.cli.sources import match_files, read_items
from fanout.cli.views import describe_submit, status_view
from fanout.cli.watch import end_code, follow
from fanout.client import BatchHandle, FanoutClient, Items
from fanout.client.dedup import Dedup
from fanout.client.limits import Limits, failures_in
from fanout.client.submitting import FOREVER, SubmitOptions, refuse_unknown
from fanout.errors import InvalidRequest
from fanout.store import Query

ItemsFile = Annotated[
    str | None,
    typer.Option("--items", metavar="FILE", help="JSON Lines, or CSV if it ends in .csv; - is JSON Lines on stdin."),
]
Pattern = Annotated[
    str | None, typer.Option("--glob", metavar="PATTERN", help="One item a file; ** reaches into all folders.")
]
Sql = Annotated[
    str | None, typer.Option("--sql", metavar="QUERY", help="One item a row of a query that reads Fanout's database.")
]
SqlUrl = Annotated[str | None, typer.Option("--sql-url", metavar="URL", help="Another database for --sql.")]
Key = Annotated[str | None, typer.Option("--key", metavar="K", help="Names the batch; a random key by default.")]
Title = Annotated[str | None, typer.Option("--title", metavar="T", help="Words for people, up to 200.")]
RangeSize = Annotated[
    int | None, typer.Option("--range-size", metavar="N", help="Items an activity; by default they adapt.")
]
MaxFailures = Annotated[
    str | None, typer.Option("--max-failures", metavar="N|P%", help="More failed items than this pause the batch.")
]
OnBudget = Annotated[
    str | None, typer.Option("--on-budget", metavar="pause|fail", help="What too many failures do; pause by default.")
]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="D", help="By when it must be closed, as 90s, 10m, 2h, 7d.")
]
DedupPolicy = Annotated[
    str | None,
    typer.Option(
        "--dedup",
        metavar="POLICY",
        help="When a closed key may run again: forever (never), open, success, or a duration since its close.",
    ),
]
OnClose = Annotated[
    str | None, typer.Option("--on-close", metavar="HANDLER", help="Gets the status as an item once it is closed.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the batch is closed; 1 if not completed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check every item and store nothing.")]
AllowUnknown = Annotated[bool, typer.Option("--allow-unknown", help="Accept a handler that nobody knows yet.")]


async def submit(
    session: Session,
    handler: HandlerName,
    items: ItemsFile = None,
    pattern: Pattern = None,
    sql: Sql = None,
    sql_url: SqlUrl = None,
    key: Key = None,
    title: Title = None,
    range_size: RangeSize = None,
    max_failures: MaxFailures = None,
    on_budget: OnBudget = None,
    deadline: Deadline = None,
    on_close: OnClose = None,
    dedup: DedupPolicy = None,
    wait: Wait = False,
    dry_run: DryRun = False,
    allow_unknown: AllowUnknown = False,
) -> int | None:
    """Submits a batch: all of its items are stored, or on any error none of them.

    The same key with the same items joins the batch that has it; with other items it is refused.

    In JSON Lines an object whose only names are key and payload is an item, anything else is a payload; blank lines
    are skipped. A row of CSV is an object of texts, a row of --sql one of its columns; a column key is the key.
    """
    limits = Limits(failures_in(max_failures), on_budget, duration("--deadline", deadline))
    policy = FOREVER if dedup is None else Dedup.read("--dedup", dedup)
    options = SubmitOptions(handler, key, title, range_size, "cli", limits, on_close, policy)
    if dry_run and wait:
        raise InvalidRequest("--dry-run stores nothing that --wait could wait for")
    source = _source(session, items, pattern, sql, sql_url)
    async with session.connect() as client, _closing(source()) as found:
        if not allow_unknown:
            await _refuse_unknown(session, client, options.handlers)
        if dry_run:
            _tell(session, await _check(session, client, options, found))
            return None
        batch = await client.submit_with(options, found, allow_unknown=True)
        session.goes_on = batch.batch_id
        _tell(session, await _answer(batch))
        return await _wait(session, client, batch) if wait else None


def _source(
    session: Session, items: str | None, pattern: str | None, sql: str | None, sql_url: str | None
) -> Callable[[], Items]:
    """What gives the items once the session is connected; raises InvalidRequest unless exactly one source is named."""
    if [items, pattern, sql].count(None) != 2:
        raise InvalidRequest("a submit takes exactly one of --items, --glob and --sql")
    if sql_url is not None and sql is None:
        raise InvalidRequest("--sql-url names a database for --sql, which is not given")
    if sql is not None:
        return lambda: read_query(_query(session, sql, sql_url))
    if pattern is not None:
        files = match_files(pattern)
        return lambda: files
    assert items is not None
    return lambda: read_items(items, session.settings.max_payload_bytes)


@asynccontextmanager
async def _closing(found: Items) -> AsyncIterator[Items]:
    """The items for the block; what holds a connection for them is closed at its end."""
    try:
        yield found
    finally:
        if isinstance(found, AsyncGenerator):
            await found.aclose()


def _query(session: Session, sql: str, sql_url: str | None) -> Query:
    if sql_url is not None:
        return Query(sql_url, sql, "--sql-url")
    assert session.chosen is not None
    return Query(session.chosen.database_url, sql, session.chosen.database_chosen_by)


async def _refuse_unknown(session: Session, client: FanoutClient, handlers: tuple[str, ...]) -> None:
    known = await client.known_handlers()
    # A caller's modules are imported only where no worker answers for a name: an import can do anything.
    if not known.issuperset(handlers):
        refuse_unknown(handlers, known | set(local_handlers(session.settings)))


async def _check(session: Session, client: FanoutClient, options: SubmitOptions, items: Items) -> dict[str, Any]:
    total = await client.check(options.handler, items, key=options.key, dedup=options.dedup.given)
    names = session.settings.names
    return {
        "batch_id": None,
        "workflow_id": None if options.key is None else names.workflow_id(options.handler, options.key),
        "handler": options.handler,
        "key": options.key,
        "outcome": "dry_run",
        "total": total,
    }


async def _answer(batch: BatchHandle) -> dict[str, Any]:
    row = await batch.read()
    return {
        "batch_id": row.id,
        "workflow_id": row.workflow_id,
        "handler": row.handler,
        "key": row.key,
        "outcome": batch.outcome,
        "total": row.total,
    }


def _tell(session: Session, answer: dict[str, Any]) -> None:
    if session.output.as_json:
        session.output.emit(answer)
    else:
        session.output.show(describe_submit(answer))


async def _wait(session: Session, client: FanoutClient, batch: BatchHandle) -> int:
    status = await follow(session, client, batch, say=session.output.note)
    if session.output.as_json:
        session.output.emit(status.model_dump())
    else:
        session.output.show(status_view(status))
    return end_code(status)
