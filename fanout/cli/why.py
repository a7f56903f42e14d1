"""`why`: the one reason why a batch or an item does not run."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fanout.cli.arguments import BatchReference
from fanout.cli.output import printable
from fanout.cli.session import Session
from fanout.cli.views import duplicate_rows, facts, when
from fanout.client import Reason, Why
from fanout.errors import ServerUnreachable

DETAIL_CHARACTERS = 1_200


async def why(
    session: Session,
    batch: BatchReference,
    item_key: Annotated[str | None, typer.Argument(metavar="ITEM_KEY", show_default=False)] = None,
) -> None:
    """Tells the one reason why a batch, or one of its items, does not run, until when, and what mends it.

    A server that does not answer is such a reason too; the command then ends with 3.
    """
    try:
        async with session.connect() as client:
            tell(session, await (await client.get(batch)).why(item_key))
    except ServerUnreachable as error:
        reason = Reason.DATABASE_UNREACHABLE if error.server == "PostgreSQL" else Reason.TEMPORAL_UNREACHABLE
        fix = f"start {error.server}, or correct the setting that chose it; workers go on by themselves"
        tell(session, Why(reason=reason, detail=str(error), fix=fix))
        raise


def tell(session: Session, found: Why) -> None:
    """Shows a reason."""
    if session.output.as_json:
        session.output.emit(found.model_dump())
    else:
        session.output.show(why_view(found))


def why_view(found: Why) -> Table:
    """A reason in words."""
    return facts(
        [
            ("reason", Text(found.reason.replace("_", " "), style="bold")),
            ("", Text(printable(found.detail, DETAIL_CHARACTERS))),
            ("until", when(found.next_at)),
            ("fix", None if found.fix is None else Text(printable(found.fix, DETAIL_CHARACTERS))),
            ("other starts", Text(f"{found.duplicates:,} joined this batch") if found.duplicates else None),
            *duplicate_rows(found.duplicates or 0, found.recent_duplicates),
        ]
    )
