"""Commands that look into batches: `status`, `list`, `verify`, and `item` for one of a batch's items."""

from dataclasses import asdict
from typing import Annotated

import typer

from fanout.cli.arguments import BatchReference
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session
from fanout.cli.views import item_view, list_view, status_view, violations_view
from fanout.client import Status
from fanout.states import BatchStatus
from fanout.store import Violation

VERIFY_CLOSED = 1_000
LONGEST_LIST = 100_000


async def status(session: Session, batch: BatchReference) -> None:
    """Shows one batch: its state, how many items stand where, who works on it, and which starts joined it."""
    async with session.connect() as client:
        handle = await client.get(batch)
        found, recent = await handle.progress(), await handle.recent_duplicates()
        if session.output.as_json:
            session.output.emit({**found.model_dump(), "recent_duplicates": [asdict(each) for each in recent]})
        else:
            session.output.show(status_view(found, recent))


def tell(session: Session, found: Status) -> None:
    """Shows a batch's status, as every command that changes one does too."""
    if session.output.as_json:
        session.output.emit(found.model_dump())
    else:
        session.output.show(status_view(found))


async def list_batches(
    session: Session,
    status: Annotated[BatchStatus | None, typer.Option("--status", help="Only batches in this state.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", metavar="H", help="Only this handler's.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=LONGEST_LIST, help="At most so many.")] = 50,
) -> None:
    """Lists batches, newest first."""
    async with session.connect() as client:
        found = client.list(status=status, handler=handler, limit=limit)
        if session.output.as_json:
            async for each in found:
                session.output.emit(each.model_dump())
        else:
            session.output.show(list_view([each async for each in found]))


async def item(
    session: Session,
    batch: BatchReference,
    item_key: Annotated[str, typer.Argument(metavar="ITEM_KEY", show_default=False)],
) -> None:
    """Shows one item with its payload, its result or error, and its history."""
    async with session.connect() as client:
        found = await (await client.get(batch)).item(item_key)
        if session.output.as_json:
            row = asdict(found)
            session.output.emit({**row.pop("row"), **row})
        else:
            session.output.show(item_view(found))


async def verify(
    session: Session,
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", show_default=False, help="A batch id, or HANDLER/KEY.")
    ] = None,
) -> int:
    """Proves the invariants anew from the rows; ends with 1 where one is broken.

    Without BATCH: all open batches and the last 1,000 closed ones.
    """
    async with session.connect() as client:
        if batch is None:
            batches = await client.store.list_batches_to_verify(VERIFY_CLOSED)
        else:
            handle = await client.get(batch)
            await handle.check_rows()
            batches = [handle.batch_id]
        violations: list[Violation] = []
        for batch_id in batches:
            violations += await client.store.read_violations(batch_id)
    if session.output.as_json:
        session.output.emit({"batches": len(batches), "violations": [asdict(each) for each in violations]})
    else:
        session.output.show(*violations_view(len(batches), violations))
    return NOT_COMPLETED if violations else DONE
