"""`try`: one handler, one payload, here and now, without any server."""

import asyncio
from typing import Annotated, Any
from uuid import uuid4

import typer

from fanout.cli.arguments import HandlerName
from fanout.cli.local import local_handlers
from fanout.cli.results import COLUMNS
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session
from fanout.cli.views import row_view
from fanout.client.submitting import refuse_unknown
from fanout.encoding import UnstorableValue, decode, encode
from fanout.errors import InvalidRequest
from fanout.handlers import Context, Handler, Handlers, Outcome, judge
from fanout.handlers.runner import Runner, Work
from fanout.states import ItemStatus
from fanout.store import ClaimedItem, Completion, ResultRow


async def try_handler(
    session: Session,
    handler: HandlerName,
    payload: Annotated[
        str, typer.Option("--payload", metavar="JSON", help="The payload, as JSON.", show_default=False)
    ],
) -> int:
    """Runs a handler once on one payload, here: no server is used, nothing is stored. Ends with 1 unless it completes.

    An error that a worker would try again leaves the item pending.
    """
    known = local_handlers(session.settings)
    refuse_unknown((handler,), set(known))
    item = ClaimedItem(0, "0", _checked(payload, session.settings.max_payload_bytes), uuid4(), 0, 0, 0)
    outcome = await _run(known, known[handler], item, session.settings.max_payload_bytes)
    row = _row(known[handler], item, outcome)
    if session.output.as_json:
        session.output.emit({column: getattr(row, column) for column in COLUMNS})
    else:
        session.output.show(row_view(row))
    return DONE if row.status is ItemStatus.COMPLETED else NOT_COMPLETED


def _checked(payload: str, limit: int) -> str:
    try:
        text = encode(decode(payload))
    except UnstorableValue as error:
        raise InvalidRequest(f"--payload: {error}") from None
    if len(text.encode()) > limit:
        raise InvalidRequest(f"--payload has {len(text.encode())} bytes; the limit is {limit} bytes")
    return text


async def _run(known: Handlers, handler: Handler, item: ClaimedItem, limit: int) -> Outcome:
    """Runs it as a worker would: on a loop, in a thread or in a child process, with its time limit."""
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    runner: Runner[None] = Runner(known, 1, limit, lambda reports: _take(ended, [each.outcome for each in reports]))
    context = Context(uuid4(), handler.name, "try", item.key, item.seq, attempt=1, epoch=1)
    try:
        runner.start([Work(None, handler, item.payload, context)], 1)
        return await ended
    finally:
        await runner.stop()


def _take(ended: asyncio.Future[Outcome], outcomes: list[Outcome | None]) -> None:
    for outcome in outcomes:
        if outcome is not None and not ended.done():
            ended.set_result(outcome)


def _row(handler: Handler, item: ClaimedItem, outcome: Outcome) -> ResultRow:
    written, settled = judge(handler, item, outcome)
    if isinstance(written, Completion):
        return _result(item, ItemStatus.COMPLETED, result=decode(written.result))
    status = ItemStatus.FAILED if settled else ItemStatus.PENDING
    return _result(item, status, written.attempts, written.crashes, error=written.error)


def _result(
    item: ClaimedItem,
    status: ItemStatus,
    attempts: int = 0,
    crashes: int = 0,
    result: Any = None,
    error: dict[str, Any] | None = None,
) -> ResultRow:
    return ResultRow(item.seq, item.key, status, attempts, crashes, result, error)
