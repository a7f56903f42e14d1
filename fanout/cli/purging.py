"""`purge`: closed batches give their rows back."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from fanout.cli.session import Session
from fanout.client.purging import Purging


async def purge(
    session: Session,
    batch: Annotated[
        str | None, typer.Argument(metavar="BATCH", show_default=False, help="A batch id, or HANDLER/KEY.")
    ] = None,
) -> None:
    """Deletes the items and results of batches that have been closed for FANOUT_RETENTION_DAYS, or of that closed one.

    Their status and their keys are remembered. It works in small steps and may be interrupted and repeated at will.
    """
    async with session.connect() as client:
        purging = Purging(client.store, timedelta(days=session.settings.retention_days))
        if batch is None:
            report = await purging.purge_old()
        else:
            report = await purging.purge_one((await client.get(batch)).batch_id)
    if session.output.as_json:
        session.output.emit(asdict(report))
    else:
        batches = "1 batch" if report.purged == 1 else f"{report.purged:,} batches"
        session.output.show(f"{batches} purged, {report.rows:,} rows deleted")
