"""Commands that steer a batch: the row decides, and the answer comes after its commit."""

from dataclasses import asdict
from typing import Annotated

import typer

from fanout.cli.arguments import BatchReference
from fanout.cli.batches import tell
from fanout.cli.session import Session
from fanout.client.handle import REASON_CHARACTERS


async def cancel(
    session: Session,
    batch: BatchReference,
    reason: Annotated[str | None, typer.Option("--reason", metavar="R", help="Kept with the batch.")] = None,
) -> None:
    """Cancels a batch: once this answers no item starts any more, and running ones have 30 s to end.

    A closed batch stays as it is.
    """
    reason = None if reason is None else reason[:REASON_CHARACTERS]
    async with session.connect() as client:
        tell(session, await (await client.get(batch)).cancel(reason))


async def pause(session: Session, batch: BatchReference) -> None:
    """Pauses a batch: once this answers no item starts any more, and running ones go on to their end.

    A batch that is paused, being cancelled or closed stays as it is.
    """
    async with session.connect() as client:
        tell(session, await (await client.get(batch)).pause())


async def resume(session: Session, batch: BatchReference) -> None:
    """Lets a paused batch go on; any other stays as it is. Failures so far no longer count against its budget."""
    async with session.connect() as client:
        tell(session, await (await client.get(batch)).resume())


async def retry(
    session: Session,
    batch: BatchReference,
    error_type: Annotated[
        str | None, typer.Option("--error-type", metavar="T", help="Only items that failed with this type of error.")
    ] = None,
    error_code: Annotated[
        str | None, typer.Option("--error-code", metavar="C", help="Only items that failed with this code.")
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option("--item", metavar="KEY", help="Only this item; may be given several times.")
    ] = None,
    status: Annotated[
        str, typer.Option("--status", metavar="failed|cancelled", help="Which items; the failed ones by default.")
    ] = "failed",
) -> None:
    """Runs failed items again, in an open batch or a closed one, with all their attempts.

    Earlier errors stay in the history of each item.
    """
    async with session.connect() as client:
        retried = await (await client.get(batch)).retry(
            error_type=error_type, error_code=error_code, items=item or None, status=status
        )
    if session.output.as_json:
        session.output.emit(asdict(retried))
    else:
        session.output.show(f"epoch {retried.epoch}: {retried.reopened:,} items reopened")
