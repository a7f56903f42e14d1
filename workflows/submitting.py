"""A start made with nothing but Temporal: stores the batch, then is its run, or hands it over to that."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.batches import BatchActivities
    from activities.submits import SubmitActivities
    from fanout.contracts import (
        BatchReference,
        BatchRequest,
        BatchStart,
        BatchWorkflow,
        CancelRequest,
        SubmitAnswer,
        SubmitWork,
    )

from workflows.window import local

# Temporal sets both on what its Schedules start: which one it was, and when that was due, without any jitter.
SCHEDULE = SearchAttributeKey.for_keyword("TemporalScheduledById")
SCHEDULED_AT = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
SHORTEST_LOOK = timedelta(seconds=1)
LONGEST_LOOK = timedelta(minutes=5)
CANCEL_PATIENCE = timedelta(seconds=5)
LOOKS_APART = 10
"""A wait for a batch looks again after this fraction of the time that it has taken so far."""


async def submit(request: BatchRequest, was_signalled: Callable[[], bool]) -> SubmitAnswer:
    """Ends with what the submit came to, or goes on as the batch's own run where this workflow has its id.

    It goes on by continuing as new: the batch's run then names its batch as every other does, and no longer carries the
    items. A signal may tell of a new batch under this id, so a run that got one does not end past it.
    """
    answer, cancelled = await _store(request)
    own = answer.workflow_id == workflow.info().workflow_id
    if cancelled and (own or answer.waits):
        await _cancel(answer)
    if answer.goes_on or (own and was_signalled()):
        workflow.continue_as_new(
            BatchStart(batch_id=answer.batch_id, database_id=answer.database_id, handler=answer.handler, key=answer.key)
        )
    if answer.waits:
        await _wait(request, answer, cancelled)
    return answer


async def _store(request: BatchRequest) -> tuple[SubmitAnswer, bool]:
    """The answer, and whether this run was cancelled meanwhile.

    A cancel lets the activity finish for a few seconds. Then it ends that too, so that one which can store nothing, as
    while the database is away, ends this run; where the batch was stored by then, the activity says so all the same.
    """
    work = local(
        SubmitActivities.submit_batch, _work(request), workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
    )
    submitting = asyncio.create_task(work)
    cancelled = False
    while True:
        try:
            return await asyncio.shield(submitting), cancelled
        except asyncio.CancelledError:
            if submitting.done():
                raise
            cancelled = True
            with suppress(TimeoutError, asyncio.CancelledError):
                await workflow.wait_condition(submitting.done, timeout=CANCEL_PATIENCE)
            submitting.cancel()
        except ActivityError as error:
            if cancelled and not _is_refusal(error):
                raise asyncio.CancelledError("nothing was stored") from None
            raise _reason(error) from None


async def _wait(request: BatchRequest, answer: SubmitAnswer, cancelled: bool) -> None:
    """Lasts until the batch is closed, so that a schedule's overlap policy sees it; a cancel of this run cancels it.

    Ends Canceled then. In a long history it continues as new with the request, which finds its batch by the first run's
    id.
    """
    began = workflow.now()
    while True:
        try:
            if (await local(BatchActivities.look_at_batch, _reference(answer))).closed:
                break
            apart = min(max((workflow.now() - began) / LOOKS_APART, SHORTEST_LOOK), LONGEST_LOOK)
            await workflow.sleep(apart, summary="the batch is open")
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            cancelled = True
            await _cancel(answer)
        if workflow.info().is_continue_as_new_suggested() and not cancelled:
            workflow.continue_as_new(request)
    if cancelled:
        raise asyncio.CancelledError("the batch was cancelled")


async def _cancel(answer: SubmitAnswer) -> None:
    reason = workflow.cancellation_reason() or "cancelled in Temporal"
    await local(BatchActivities.cancel_batch, CancelRequest(**_reference(answer).model_dump(), reason=reason))
    if answer.waits:
        # The batch's run may sleep, as in a pause. Where there is none, the sweeper starts the one that closes it.
        run = workflow.get_external_workflow_handle_for(BatchWorkflow.run, answer.workflow_id)
        await asyncio.gather(run.signal(BatchWorkflow.changed), return_exceptions=True)


def _reference(answer: SubmitAnswer) -> BatchReference:
    return BatchReference(batch_id=answer.batch_id, database_id=answer.database_id)


def _work(request: BatchRequest) -> SubmitWork:
    info = workflow.info()
    due: datetime | None = info.typed_search_attributes.get(SCHEDULED_AT)
    origin = "temporal" if info.typed_search_attributes.get(SCHEDULE) is None else "schedule"
    # Both survive a reset. A cron's runs are a chain, of which each asks anew.
    run_id = info.original_execution_run_id if info.cron_schedule else info.first_execution_run_id
    return SubmitWork(request=request, origin=origin, start_id=UUID(run_id), fired_at=due)


def _is_refusal(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.non_retryable


def _reason(error: ActivityError) -> ApplicationError:
    """Why the request was refused, as the failure of this workflow itself."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return ApplicationError("the batch could not be stored", type="error", non_retryable=True)
    return ApplicationError(cause.message, type=cause.type, non_retryable=True)
