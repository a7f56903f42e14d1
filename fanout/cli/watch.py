"""`watch`, and the waiting of `submit --wait`: progress until a batch is closed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from fanout.cli.arguments import BatchReference
from fanout.cli.board import Board
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session
from fanout.cli.views import progress_line, status_view
from fanout.client import BatchHandle, FanoutClient, Status
from fanout.states import BatchStatus
from fanout.store import OUTAGE

POLL_SECONDS = 0.5
LINE_SECONDS = 5.0
"""How often plain lines tell of progress, while the batch's state stays the same."""
PATIENCE_SECONDS = 60.0
"""For so long the database may be away before a command that only watches gives up."""


async def watch(session: Session, batch: BatchReference) -> int:
    """Shows progress until the batch is closed; ends with 1 unless it closed as completed.

    Ending this command does not end the batch.
    """
    output = session.output
    async with session.connect() as client:
        found = await client.get(batch)
        session.goes_on = found.batch_id
        if output.as_json:
            return end_code(await _emit_changes(session, found))
        status = await follow(session, client, found, say=lambda line: output.show(line))
        output.show(status_view(status))
        return end_code(status)


def end_code(status: Status) -> int:
    """The exit code of a command that waited for the batch."""
    return DONE if status.status is BatchStatus.COMPLETED else NOT_COMPLETED


async def follow(session: Session, client: FanoutClient, batch: BatchHandle, say: Callable[[str], None]) -> Status:
    """Shows progress until the batch is closed, and answers how it closed: a board on a terminal, else plain lines."""
    if not session.output.notes.is_terminal:
        return await _say_progress(batch, say)
    with Board(session.output.notes) as board:
        async for status in polls(batch):
            board.update(status, await new_failures(client, batch, board))
    return status


async def polls(batch: BatchHandle) -> AsyncIterator[Status]:
    """The batch's status twice a second, the last time when it is closed. Outlives an outage of the database."""
    while True:
        status = await _read(batch)
        yield status
        if status.closed:
            return
        await asyncio.sleep(POLL_SECONDS)


async def new_failures(client: FanoutClient, batch: BatchHandle, board: Board) -> list[dict[str, object]]:
    """The failures that the board does not have yet, oldest first."""
    try:
        events = await client.store.read_events(batch.batch_id, board.seen)
    except OUTAGE:
        return []
    board.seen = events[-1]["id"] if events else board.seen
    return [event for event in events if event["kind"] == "failed"]


async def _read(batch: BatchHandle) -> Status:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await batch.progress()
        except OUTAGE:
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(POLL_SECONDS)


async def _emit_changes(session: Session, batch: BatchHandle) -> Status:
    last = None
    async for status in polls(batch):
        if status != last:
            session.output.emit(status.model_dump())
        last = status
    assert last is not None
    return last


async def _say_progress(batch: BatchHandle, say: Callable[[str], None]) -> Status:
    said, next_time, state = "", 0.0, None
    async for status in polls(batch):
        line = progress_line(status)
        if line != said and (status.status is not state or time.monotonic() >= next_time):
            say(line)
            said, next_time, state = line, time.monotonic() + LINE_SECONDS, status.status
    return status
