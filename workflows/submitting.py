"""A start made with nothing but Temporal: stores the batch, then is its run, or hands it over to that."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from temporalio import workflow
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.batches import BatchActivities
    from activities.submits import SubmitActivities
    from fanout.contracts import BatchReference, BatchRequest, BatchStart, CancelRequest, SubmitAnswer, SubmitWork

from workflows.window import local

# Temporal sets it on what its Schedules start.
SCHEDULE = SearchAttributeKey.for_keyword("TemporalScheduledById")


async def submit(request: BatchRequest, was_signalled: Callable[[], bool]) -> SubmitAnswer:
    """Ends with what the submit came to, or goes on as the batch's own run where this workflow has its id.

    It goes on by continuing as new: the batch's run then names its batch as every other does, and no longer carries the
    items. A signal may tell of a new batch under this id, so a run that got one does not end past it.
    """
    submitting = asyncio.create_task(local(SubmitActivities.submit_batch, _work(request)))
    cancelled = False
    while True:
        try:
            answer = await asyncio.shield(submitting)
            break
        except asyncio.CancelledError:
            if submitting.done():
                raise
            cancelled = True
        except ActivityError as error:
            raise _reason(error) from None
    own = answer.workflow_id == workflow.info().workflow_id
    if cancelled and own:
        reference = BatchReference(batch_id=answer.batch_id, database_id=answer.database_id)
        reason = workflow.cancellation_reason() or "cancelled in Temporal"
        await local(BatchActivities.cancel_batch, CancelRequest(**reference.model_dump(), reason=reason))
    if answer.goes_on or (own and was_signalled()):
        workflow.continue_as_new(
            BatchStart(batch_id=answer.batch_id, database_id=answer.database_id, handler=answer.handler, key=answer.key)
        )
    return answer


def _work(request: BatchRequest) -> SubmitWork:
    info = workflow.info()
    origin = "temporal" if info.typed_search_attributes.get(SCHEDULE) is None else "schedule"
    # Both survive a reset. A cron's runs are a chain, of which each asks anew.
    run_id = info.original_execution_run_id if info.cron_schedule else info.first_execution_run_id
    return SubmitWork(request=request, origin=origin, start_id=UUID(run_id))


def _reason(error: ActivityError) -> ApplicationError:
    """Why the request was refused, as the failure of this workflow itself."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return ApplicationError("the batch could not be stored", type="error", non_retryable=True)
    return ApplicationError(cause.message, type=cause.type, non_retryable=True)
