"""A handle on one batch."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from fanout.client.items import check_words, key_fault
from fanout.client.submitting import SubmitOutcome
from fanout.client.why import Why
from fanout.errors import BatchPurged, InvalidRequest, UnknownBatch, UnknownItem
from fanout.live import Message
from fanout.names import ITEM_KEY_BYTES
from fanout.states import ItemStatus
from fanout.status import Status
from fanout.store import OUTAGE, BatchRow, Duplicate, ItemRow, Reopened, ResultRow

if TYPE_CHECKING:
    from fanout.client.client import FanoutClient

FIRST_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.25
PATIENCE_SECONDS = 30.0
REASON_CHARACTERS = 1_000
RECENT_DUPLICATES = 10


@dataclass(frozen=True, slots=True)
class Retried:
    """What a retry came to: the epoch that it began, else the batch's own, and how many items it reopened."""

    batch_id: UUID
    epoch: int
    reopened: int


class BatchHandle:
    """One batch, by its id; `outcome` says what the submit came to that made this handle."""

    def __init__(self, client: "FanoutClient", batch_id: UUID, outcome: SubmitOutcome | None = None) -> None:
        self.batch_id = batch_id
        self.outcome = outcome
        self._client = client

    async def read(self) -> BatchRow:
        """The batch's row, also of a purged one; raises UnknownBatch."""
        batch = await self._client.store.read_batch(self.batch_id)
        if batch is None:
            raise UnknownBatch(str(self.batch_id))
        return batch

    async def check_rows(self) -> BatchRow:
        """The batch's row; raises UnknownBatch, or BatchPurged where its items and results are gone."""
        batch = await self.read()
        if batch.purged_at is not None:
            raise BatchPurged(self.batch_id)
        return batch

    async def start(self) -> None:
        """Starts the workflow of a batch that was submitted on a connection of the caller's, once that has committed.

        Raises UnknownBatch before, and after a rollback. If the process dies first, the same submit starts it, or the
        sweeper does. On a batch that runs or is closed it changes nothing.
        """
        batch = await self.read()
        if not batch.closed:
            await self._client.starter.start(batch)

    async def duplicates(self) -> list[Duplicate]:
        """The starts that made no batch because this one had their key, oldest first: when, from where, and the answer.

        A purge deletes those up to then, and leaves their number in the status. Raises UnknownBatch.
        """
        await self.read()
        return (await self._client.store.joins.list_duplicates(self.batch_id))[::-1]

    async def recent_duplicates(self) -> list[Duplicate]:
        """The newest ten of them, newest first."""
        return await self._client.store.joins.list_duplicates(self.batch_id, RECENT_DUPLICATES)

    async def progress(self) -> Status:
        """The batch's status now."""
        batch = await self.read()
        processing = 0 if batch.closed else await self._client.store.count_processing(self.batch_id)
        return Status.of(batch, processing)

    async def wait(self) -> Status:
        """The status once the batch is closed; it may be waited for any number of times, also after a crash.

        A database that is away for less than half a minute at a time does not end the wait.
        """
        pause = FIRST_POLL_SECONDS
        while not (batch := await self._read_patiently()).closed:
            await asyncio.sleep(pause)
            pause = min(LONGEST_POLL_SECONDS, pause * 1.5)
        return Status.of(batch, 0)

    async def events(
        self, after: int | str | None = None, *, patience: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """What happens to the batch, as it happens, up to and with its next `closed` that no retry has followed yet.

        First a `snapshot`, then every event once and in order, and between them `progress`, of which a slow reader gets
        only the newest. `after` is the id of the last message that an earlier reading got: nothing is lost in between,
        nothing comes twice, and after a `closed` that nothing followed there is nothing. Without it come the events
        since the batch was last closed, and of a closed batch its `closed`. What cannot be resumed begins with a
        `reset`.

        Raises UnknownBatch, and the database's error once that has been away for `patience` seconds, if these are
        given. A retry is only seen by a reading that begins after it.
        """
        hub = self._client.hub
        start = await hub.find_start(self.batch_id, after)
        async with aclosing(hub.messages(self.batch_id, start, patience)) as messages:
            async for message in messages:
                yield message

    async def _read_patiently(self) -> BatchRow:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self.read()
            except OUTAGE:
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(LONGEST_POLL_SECONDS)

    async def results(
        self, status: ItemStatus | str | None = None, *, with_payload: bool = False
    ) -> AsyncIterator[ResultRow]:
        """All rows in seq order, in constant memory; only those in `status` where it is given."""
        wanted = None if status is None else _item_status(status)
        await self.check_rows()
        async for row in self._client.store.read_results(self.batch_id, wanted, with_payload):
            yield row

    async def item(self, item_key: str) -> ItemRow:
        """One item with its payload, times and history; raises UnknownItem, or BatchPurged."""
        await self.check_rows()
        return await self._client.store.read_item(self.batch_id, self._checked(item_key))

    async def why(self, item_key: str | None = None) -> Why:
        """The one reason why the batch, or that item, does not run; or that it does. Raises UnknownItem."""
        batch = await self.read()
        if item_key is None or batch.purged_at is not None:
            found = await self._client.inquiry.why_batch(batch)
        else:
            found = await self._client.inquiry.why_item(batch, self._checked(item_key))
        recent = tuple(await self.recent_duplicates())
        return found.model_copy(update={"duplicates": batch.duplicates, "recent_duplicates": recent})

    def _checked(self, item_key: str) -> str:
        if not isinstance(item_key, str) or key_fault(item_key, ITEM_KEY_BYTES) is not None:
            raise UnknownItem(self.batch_id, str(item_key))
        return item_key

    async def cancel(self, reason: str | None = None) -> Status:
        """Cancels the batch: once this returns no item starts any more, and all that do not run are cancelled.

        Running items end within 30 s, then the batch is `cancelled`. On a closed batch it changes nothing. If the
        process dies in between, the row has decided: asking again wakes the workflow.
        """
        if reason is not None:
            check_words("a reason", reason, REASON_CHARACTERS)
        await self._client.store.cancel_batch(self.batch_id, reason)
        batch = await self.read()
        if not batch.closed and not await self._client.starter.request_cancel(batch, reason):
            # No run is there to close the batch: it was never started, or was ended from outside.
            await self._client.starter.start(batch)
            await self._client.starter.request_cancel(batch, reason)
        return await self.progress()

    async def pause(self) -> Status:
        """Pauses the batch: once this returns no item starts any more, and what runs goes on to its end.

        On a batch that is paused already, is being cancelled or is closed it changes nothing.
        """
        await self._client.store.pause_batch(self.batch_id)
        return await self._tell()

    async def resume(self) -> Status:
        """Lets a paused batch go on; on any other it changes nothing.

        A budget of failures counts from here: what has failed so far is forgiven.
        """
        await self._client.store.resume_batch(self.batch_id)
        return await self._tell()

    async def retry(
        self,
        *,
        error_type: str | None = None,
        error_code: str | None = None,
        items: Sequence[str] | None = None,
        status: str = "failed",
    ) -> Retried:
        """Reopens the failed items, or those of one error type, of one code or of some keys, under a new epoch.

        With `status="cancelled"` the cancelled ones instead, of a batch that was cancelled or given up. They run again
        with all their attempts; earlier errors stay in the events, and work that runs is not disturbed. An open batch
        is retried as well as a closed one. What stays failed is forgiven by a budget, and a deadline that has passed is
        dropped. If the process dies before the workflow is told, the rows have decided: asking again, or submitting
        again, starts it. Raises KeyHeld where another open batch has the key by now, and BatchPurged.
        """
        wanted = _reopened(status)
        await self.check_rows()
        await self._refuse_unknown_items(items or ())
        reopened = await self._client.store.reopen_batch(self.batch_id, error_type, items, wanted, error_code)
        state = await self._tell()
        epoch, rows = reopened or (state.epoch, 0)
        return Retried(self.batch_id, epoch, rows)

    async def _refuse_unknown_items(self, items: Sequence[str]) -> None:
        for key in items:
            await self.item(key)

    async def _tell(self) -> Status:
        """Makes the workflow look at the row, or starts it where none runs."""
        await self.start()
        return await self.progress()


def _item_status(status: str) -> ItemStatus:
    try:
        return ItemStatus(status)
    except ValueError:
        raise InvalidRequest(f"{status!r} is no state of an item: {', '.join(ItemStatus)}") from None


def _reopened(status: str) -> Reopened:
    match status:
        case "failed" | "cancelled":
            return status
    raise InvalidRequest(f"a retry reopens items that are failed or cancelled, not {status!r}")
