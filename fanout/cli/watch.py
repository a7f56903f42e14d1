"""`watch`, and the waiting of `submit --wait`: progress until a batch is closed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fanout.cli.arguments import BatchReference
from fanout.cli.board import Board, Lines, progress_view
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session
from fanout.cli.views import status_view
from fanout.client import BatchHandle, FanoutClient, Status
from fanout.live import Message
from fanout.states import BatchStatus
from fanout.store import OUTAGE

POLL_SECONDS = 0.5
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
        status = await follow(session, found, say=lambda line: output.show(line))
        output.show(status_view(status))
        return end_code(status)


def end_code(status: Status) -> int:
    """The exit code of a command that waited for the batch."""
    return DONE if status.status is BatchStatus.COMPLETED else NOT_COMPLETED


async def follow(session: Session, batch: BatchHandle, say: Callable[[str], None]) -> Status:
    """Shows progress until the batch is closed, and answers how it did: a board on a terminal, else lines by `say`."""
    last = None
    with progress_view(session.output.notes, say) as view:
        async for message in messages(batch):
            last = message.status or last
            if last is not None:
                view.update(last, _failures(message))
    assert last is not None
    return last


async def messages(batch: BatchHandle) -> AsyncIterator[Message]:
    """All that has happened, and what happens until a status says that the batch is closed.

    Outlives an outage of the database.
    """
    after = 0
    closed = False
    while not closed:
        # Of a batch that was reopened meanwhile the stream ends all the same: it goes on behind its last message.
        async for message in batch.events(after, patience=PATIENCE_SECONDS):
            after = message.id or after
            closed = message.status.closed if message.status else closed
            yield message


def _failures(message: Message) -> list[dict[str, Any]]:
    return [message.data] if message.data.get("kind") == "failed" else []


async def polls(batch: BatchHandle, every: float = POLL_SECONDS) -> AsyncIterator[Status]:
    """The batch's status again and again, the last time when it is closed. Outlives an outage of the database."""
    while True:
        status = await _read(batch)
        yield status
        if status.closed:
            return
        await asyncio.sleep(every)


async def new_failures(client: FanoutClient, batch: BatchHandle, view: Board | Lines) -> list[dict[str, Any]]:
    """The failures that the view does not have yet, oldest first."""
    try:
        events = await client.store.read_events(batch.batch_id, view.seen)
    except OUTAGE:
        return []
    view.seen = events[-1]["id"] if events else view.seen
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
    async for message in messages(batch):
        if message.status is not None and message.status != last:
            session.output.emit(message.status.model_dump())
            last = message.status
    assert last is not None
    return last
