"""The short activities of the parent workflow: each is one look at, or one move of, the batch's row."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.ranges import refuse_other_database
from fanout.client.starting import Starter
from fanout.contracts import (
    CANCEL_GRACE,
    BatchReference,
    BatchView,
    CancelRequest,
    CloseRequest,
    KeysRequest,
    RetryRequest,
    Span,
)
from fanout.encoding import Fingerprint, encode
from fanout.names import Names
from fanout.states import BatchStatus
from fanout.status import Status
from fanout.store import BatchRow, BatchStore, NewBatch, StoredItem, WholeBatch


class BatchActivities:
    """Run as local activities, so that they never queue behind items. All are safe to repeat."""

    def __init__(
        self, store: BatchStore, database_id: UUID, heartbeat_seconds: float, names: Names, starter: Starter
    ) -> None:
        self.database_id = database_id
        self._store = store
        self._heartbeat_seconds = heartbeat_seconds
        self._names = names
        self._starter = starter

    @activity.defn
    async def open_batch(self, reference: BatchReference) -> BatchView:
        """Opens a pending batch for the workflow that its row names, and says where its open rows are.

        One whose deadline has passed before is given up instead, so that none of its items starts.
        """
        refuse_other_database(self, reference)
        await self._store.expire_batch(reference.batch_id)
        await self._store.open_batch(reference.batch_id, activity.info().workflow_id or "")
        batch = await self._read(reference.batch_id)
        if batch.workflow_id != activity.info().workflow_id:
            raise ApplicationError(
                f"batch {batch.id} belongs to the workflow {batch.workflow_id}",
                type="OtherWorkflow",
                non_retryable=True,
            )
        await self._start_follow_up(batch)
        return await self._view(batch)

    @activity.defn
    async def look_at_batch(self, reference: BatchReference) -> BatchView:
        """The batch's state and epoch, without a scan for open rows; a budget that is overdrawn takes effect."""
        refuse_other_database(self, reference)
        await self._store.trip_budget(reference.batch_id)
        return self._facts(await self._read(reference.batch_id), [])

    @activity.defn
    async def close_batch(self, request: CloseRequest) -> BatchView:
        """Closes the batch if every row is settled; else says where the open ones are.

        The transaction that closes it stores the batch of its `on_close`, which is then started. Asked again, as after
        a lost answer or a crash, it starts that batch again unless it is closed: a start of what runs changes nothing.
        """
        refuse_other_database(self, request)
        await self._store.close_batch(request.batch_id, request.epoch, CANCEL_GRACE, self._follow_up)
        batch = await self._read(request.batch_id)
        await self._start_follow_up(batch)
        return await self._view(batch)

    @activity.defn
    async def expire_batch(self, reference: BatchReference) -> BatchView:
        """Gives up an open batch if its deadline has passed; of any other it only tells the state."""
        refuse_other_database(self, reference)
        await self._store.expire_batch(reference.batch_id)
        return self._facts(await self._read(reference.batch_id), [])

    @activity.defn
    async def cancel_batch(self, request: CancelRequest) -> BatchView:
        """Cancels an open batch; of a closed one it only tells the state."""
        refuse_other_database(self, request)
        if await self._store.cancel_batch(request.batch_id, request.reason) and request.request_cancel:
            workflow_id = activity.info().workflow_id
            assert workflow_id is not None
            await activity.client().get_workflow_handle(workflow_id).cancel(reason=request.reason or "")
        return self._facts(await self._read(request.batch_id), [])

    @activity.defn
    async def pause_batch(self, reference: BatchReference) -> BatchView:
        """Pauses a batch that runs; of any other it only tells the state."""
        refuse_other_database(self, reference)
        await self._store.pause_batch(reference.batch_id)
        return self._facts(await self._read(reference.batch_id), [])

    @activity.defn
    async def resume_batch(self, reference: BatchReference) -> BatchView:
        """Lets a paused batch go on; of any other it only tells the state."""
        refuse_other_database(self, reference)
        await self._store.resume_batch(reference.batch_id)
        return self._facts(await self._read(reference.batch_id), [])

    @activity.defn
    async def reopen_batch(self, request: RetryRequest) -> BatchView:
        """Reopens items under a new epoch. Asked again it finds none in that state: harmless to repeat."""
        refuse_other_database(self, request)
        await self._store.reopen_batch(request.batch_id, request.error_type, status=request.status)
        return self._facts(await self._read(request.batch_id), [])

    @activity.defn
    async def read_item_keys(self, request: KeysRequest) -> list[str]:
        """The keys of a span, in order."""
        refuse_other_database(self, request)
        return await self._store.read_item_keys(request.batch_id, request.span.lo, request.span.hi)

    def _follow_up(self, batch: BatchRow) -> WholeBatch | None:
        """The batch of one item that tells the handler `on_close` how `batch` ended: one an epoch."""
        handler, key = _follow_up_name(batch)
        if handler is None:
            return None
        item = StoredItem("closed", encode(Status.of(batch, 0)))
        fingerprint = Fingerprint()
        fingerprint.add(item.key, item.payload)
        new = NewBatch(uuid4(), handler, key, self._names.workflow_id(handler, key), None, {})
        return WholeBatch(new, (item,), fingerprint.digest())

    async def _start_follow_up(self, batch: BatchRow) -> None:
        """Starts that batch unless it is closed: who closed `batch` may have died before."""
        handler, key = _follow_up_name(batch)
        if not batch.closed or handler is None:
            return
        found = await self._store.find_batch(handler, key)
        follow_up = None if found is None else await self._store.read_batch(found)
        if follow_up is not None and not follow_up.closed:
            await self._starter.start(follow_up)

    async def _read(self, batch_id: UUID) -> BatchRow:
        batch = await self._store.read_batch(batch_id)
        if batch is None:
            raise ApplicationError(f"there is no batch {batch_id}", type="UnknownBatch", non_retryable=True)
        return batch

    async def _view(self, batch: BatchRow) -> BatchView:
        if batch.closed:
            successor = await self._store.read_successor(batch.id)
            return self._facts(batch, []).model_copy(update={"successor": successor})
        if batch.open == batch.total and batch.total > 0:
            return self._facts(batch, [(0, batch.total)])
        return self._facts(batch, await self._store.read_open_spans(batch.id, batch.total))

    def _facts(self, batch: BatchRow, spans: list[tuple[int, int]]) -> BatchView:
        return BatchView(
            status=batch.status,
            epoch=batch.epoch,
            reason=batch.reason if batch.status is BatchStatus.FAILED else None,
            total=batch.total,
            completed=batch.completed,
            failed=batch.failed,
            cancelled=batch.cancelled,
            workers=batch.workers,
            slots=batch.slots,
            heartbeat_seconds=self._heartbeat_seconds,
            range_size=batch.options.get("range_size"),
            spans=[Span(lo=lo, hi=hi) for lo, hi in spans],
            deadline_seconds=batch.deadline_seconds,
            has_budget="failure_limit" in batch.options,
        )

    @property
    def all(self) -> list[Callable[..., Any]]:
        """Every activity of this class, for the worker."""
        return [
            self.open_batch,
            self.look_at_batch,
            self.close_batch,
            self.expire_batch,
            self.cancel_batch,
            self.pause_batch,
            self.resume_batch,
            self.reopen_batch,
            self.read_item_keys,
        ]


def _follow_up_name(batch: BatchRow) -> tuple[str | None, str]:
    """Handler and key of the batch that follows when this epoch of `batch` closes; no handler, no such batch."""
    return batch.options.get("on_close"), f"{batch.id}/{batch.epoch}/closed"
