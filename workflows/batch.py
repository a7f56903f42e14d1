"""`Batch`: the parent workflow of one batch. Open, fan out, close, and round again until the row says closed."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.batches import BatchActivities
    from fanout.contracts import (
        FAILED_ATTRIBUTE,
        HANDLER_ATTRIBUTE,
        STATUS_ATTRIBUTE,
        TOTAL_ATTRIBUTE,
        BatchOutcome,
        BatchReference,
        BatchRequest,
        BatchStart,
        BatchView,
        CancelRequest,
        CloseRequest,
        Pace,
        Progress,
        RangeOutcome,
        RetryRequest,
        ShardInput,
        ShardOutcome,
        SubmitAnswer,
    )
    from fanout.states import BatchStatus
    from pydantic import TypeAdapter, ValidationError

from workflows.details import batch_details
from workflows.shards import SHARDED_ITEMS, Shards
from workflows.submitting import submit
from workflows.window import Window, local

PAUSE_LOOK = timedelta(hours=1)
PAUSE_LOOKS = 12
"""After so many looks, each twice as long after the last, they are an hour apart."""
CANCEL_LOOK = timedelta(seconds=1)
CANCEL_REQUEST_WAIT = timedelta(seconds=10)
# Two clocks may differ by a little: where the deadline's timer was early it waits again, but never in a hot loop.
MINIMUM_WAIT_SECONDS = 0.1
ENDS = ("completed", "failed", "cancelled")


INPUT: TypeAdapter[BatchStart | BatchRequest] = TypeAdapter(BatchStart | BatchRequest)


@workflow.defn(name="Batch", failure_exception_types=[ValidationError])
class Batch:
    """Runs one batch to its close. The row decides everything: state, epoch and what is left."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._given: BatchStart | BatchRequest = INPUT.validate_python(inputs[0] if inputs else None)
        self._changed = False
        self._cancel_requested = False
        self._fan: Window | Shards | None = None
        self._turn = 0
        self._progress = Progress(status="pending", total=0, completed=0, failed=0, cancelled=0)
        self._counted = self._progress
        self._shown_status: BatchStatus | None = None
        self._view: BatchView | None = None
        self._deadline: asyncio.Task[None] | None = None
        self._looks_while_paused = 0

    @workflow.run
    async def run(self, *inputs: Any) -> BatchOutcome | SubmitAnswer:
        """Ends Completed with the counts, Failed with the batch's reason as the error's type, or Canceled.

        A request ends Completed with what the submit came to, or Failed with the code of what is wrong with it.
        """
        # Whatever was given is taken in: a run that does not take its inputs would be tried again for ever.
        if len(inputs) > 1:
            raise ApplicationError(
                f"Batch takes one input, not {len(inputs)}", type="invalid_request", non_retryable=True
            )
        if isinstance(self._given, BatchRequest):
            return await submit(self._given, lambda: self._changed)
        driving = asyncio.create_task(self._drive())
        while True:
            try:
                view = await asyncio.shield(driving)
                break
            except asyncio.CancelledError:
                if driving.done():
                    raise
                await self._request_cancel()
        if view.status is BatchStatus.CANCELLED and self._cancel_requested:
            raise asyncio.CancelledError("the batch was cancelled")
        if view.status in (BatchStatus.CANCELLED, BatchStatus.FAILED):
            raise ApplicationError(
                f"the batch ended as {view.status}", type=view.reason or view.status, non_retryable=True
            )
        return BatchOutcome(
            status=view.status,
            epoch=view.epoch,
            total=view.total,
            completed=view.completed,
            failed=view.failed,
            cancelled=view.cancelled,
        )

    @workflow.signal(description="Look at the batch's row again")
    async def changed(self) -> None:
        """Somebody changed the batch's row, or joined the batch."""
        self._wake()

    @workflow.update(description="Start no more items; what runs goes on")
    async def pause(self) -> str:
        """Pauses the batch; answers its state."""
        return self._told(await local(BatchActivities.pause_batch, self._reference))

    @workflow.update(description="Let a paused batch go on")
    async def resume(self) -> str:
        """Lets a paused batch go on; answers its state."""
        return self._told(await local(BatchActivities.resume_batch, self._reference))

    @workflow.update(description="Run failed items again; an error type narrows it; status may be failed or cancelled")
    async def retry(self, error_type: str | None = None, status: Literal["failed", "cancelled"] = "failed") -> str:
        """Reopens failed items, or cancelled ones; answers the batch's state."""
        request = RetryRequest(**self._reference.model_dump(), error_type=error_type, status=status)
        return self._told(await local(BatchActivities.reopen_batch, request))

    @workflow.update(description="Start no more items, end those that run, and close the batch as cancelled")
    async def cancel(self, reason: str | None = None) -> str:
        """Cancels the batch; answers its state."""
        request = CancelRequest(**self._reference.model_dump(), reason=reason, request_cancel=True)
        return self._told(await local(BatchActivities.cancel_batch, request))

    # A validator that cannot be called with what somebody sent refuses the update; the update itself would fail the
    # workflow's task, again and again.
    @retry.validator
    def check_retry(self, error_type: str | None = None, status: Literal["failed", "cancelled"] = "failed") -> None:
        """Refuses arguments that `retry` does not take."""

    @cancel.validator
    def check_cancel(self, reason: str | None = None) -> None:
        """Refuses arguments that `cancel` does not take."""

    @workflow.query(description="Counts as this workflow has seen them")
    def progress(self) -> Progress:
        """Counts as this workflow has seen them; the row is the truth."""
        return self._progress

    @property
    def _start(self) -> BatchStart:
        if not isinstance(self._given, BatchStart):
            raise ApplicationError("this run only asks for a batch", type="NotStored", non_retryable=True)
        return self._given

    @property
    def _reference(self) -> BatchReference:
        return BatchReference(batch_id=self._start.batch_id, database_id=self._start.database_id)

    def _told(self, view: BatchView) -> str:
        self._wake()
        return view.status.value

    def _wake(self) -> None:
        self._changed = True
        if self._fan is not None:
            self._fan.wake()

    async def _request_cancel(self) -> None:
        """The cancel button of the Web UI: the row decides, as with any other cancel."""
        self._cancel_requested = True
        reason = workflow.cancellation_reason() or "cancelled in Temporal"
        await local(
            BatchActivities.cancel_batch,
            CancelRequest(**self._reference.model_dump(), reason=reason),
        )
        self._wake()

    async def _drive(self) -> BatchView:
        view = await local(BatchActivities.open_batch, self._reference)
        while True:
            self._adopt(view)
            if view.closed:
                await self._await_cancel_request(view)
                # An update that is still at work may be about to reopen the batch.
                await workflow.wait_condition(workflow.all_handlers_finished)
                if view.successor is not None:
                    # It was started under this run's id: this run may be all that its start has found.
                    workflow.continue_as_new(self._start.model_copy(update={"batch_id": view.successor}))
                if not self._changed:
                    return view
                # A signal that came while the batch closed may tell of a retry, or of a new batch with the same key: a
                # run must not end past it.
                self._changed = False
                view = await local(BatchActivities.open_batch, self._reference)
                continue
            await self._work(view)
            # Before the row is read, not after: whoever changes it from here on is not overlooked.
            self._changed = False
            view = await local(BatchActivities.close_batch, self._close_request(view))

    async def _work(self, view: BatchView) -> None:
        self._looks_while_paused = self._looks_while_paused + 1 if view.status is BatchStatus.PAUSED else 0
        match view.status:
            case BatchStatus.PAUSED:
                await self._sleep(self._pause_look(view))
            case BatchStatus.CANCELLING:
                if view.completed + view.failed + view.cancelled < view.total:
                    await self._sleep(CANCEL_LOOK)
            case _:
                await self._fan_out(view)

    def _pause_look(self, view: BatchView) -> timedelta:
        """A pause by the budget ends with the last item that runs, of which nobody tells: the first looks come soon."""
        if not view.has_budget or self._looks_while_paused > PAUSE_LOOKS:
            return PAUSE_LOOK
        seconds: int = 2 ** (self._looks_while_paused - 1)
        return timedelta(seconds=seconds)

    async def _sleep(self, longest: timedelta) -> None:
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._changed, timeout=longest, timeout_summary="look again")

    def _watch_deadline(self, view: BatchView) -> None:
        """Keeps one timer while the batch has a deadline ahead; a retry may have taken it away."""
        over = view.closed or view.status is BatchStatus.CANCELLING or view.deadline_seconds is None
        if over and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not over and self._deadline is None:
            self._deadline = asyncio.create_task(self._keep_deadline(view.deadline_seconds or 0.0))

    async def _keep_deadline(self, seconds: float | None) -> None:
        """Gives the batch up when its time is over; only the database's clock says whether it is."""
        while seconds is not None:
            await workflow.sleep(max(seconds, MINIMUM_WAIT_SECONDS), summary="deadline")
            view = await local(BatchActivities.expire_batch, self._reference)
            open_ahead = not view.closed and view.status is not BatchStatus.CANCELLING
            seconds = view.deadline_seconds if open_ahead else None
        self._wake()

    async def _await_cancel_request(self, view: BatchView) -> None:
        """A client cancels the row first and this workflow next: wait for that, to end Canceled and not Failed."""
        if view.status is BatchStatus.CANCELLED and not self._cancel_requested:
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self._cancel_requested, timeout=CANCEL_REQUEST_WAIT)

    async def _fan_out(self, view: BatchView) -> None:
        self._counted = self._progress
        shard = ShardInput(
            batch_id=self._start.batch_id,
            database_id=self._start.database_id,
            handler=self._start.handler,
            key=self._start.key,
            epoch=view.epoch,
            spans=view.spans,
            slots=view.slots,
            workers=view.workers,
            heartbeat_seconds=view.heartbeat_seconds,
            fixed_range_size=view.range_size,
            pace=Pace(),
            has_budget=view.has_budget,
        )
        if sum(span.size for span in view.spans) > SHARDED_ITEMS:
            self._fan = Shards(shard, self._on_outcome)
        else:
            self._fan = Window(shard, self._on_outcome, self._show, self._turn)
        await self._fan.run()
        if isinstance(self._fan, Window):
            self._turn = self._fan.turn
        stopped, self._fan = self._fan.stopped, None
        if workflow.info().is_continue_as_new_suggested() and not stopped:
            workflow.continue_as_new(self._start)

    def _close_request(self, view: BatchView) -> CloseRequest:
        reference = self._reference
        return CloseRequest(batch_id=reference.batch_id, database_id=reference.database_id, epoch=view.epoch)

    def _on_outcome(self, outcome: RangeOutcome | ShardOutcome) -> None:
        # A look at the row counts what a range tells of at its end. Neither is ahead of the rows, so the greater holds.
        sums = {name: getattr(self._counted, name) + getattr(outcome, name) for name in ENDS}
        self._counted = self._counted.model_copy(update=sums)
        seen = {name: max(getattr(self._progress, name), number) for name, number in sums.items()}
        self._progress = self._progress.model_copy(update=seen)
        self._show_details()

    def _adopt(self, view: BatchView) -> None:
        self._show(view)
        self._watch_deadline(view)
        if view.status is self._shown_status:
            return
        self._shown_status = view.status
        if workflow.info().typed_search_attributes.get(HANDLER_ATTRIBUTE) is not None:
            updates: list[SearchAttributeUpdate[str] | SearchAttributeUpdate[int]] = [
                STATUS_ATTRIBUTE.value_set(view.status.value),
                TOTAL_ATTRIBUTE.value_set(view.total),
                FAILED_ATTRIBUTE.value_set(view.failed),
            ]
            workflow.upsert_search_attributes(updates)

    def _show(self, view: BatchView) -> None:
        self._view = view
        self._progress = Progress(
            status=view.status,
            total=view.total,
            completed=view.completed,
            failed=view.failed,
            cancelled=view.cancelled,
        )
        self._show_details()

    def _show_details(self) -> None:
        workflow.set_current_details(batch_details(self._progress, self._view, workflow.now()))
