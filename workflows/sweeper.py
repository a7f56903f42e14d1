"""`Sweeper` runs one pass under one fixed id; `SweepTick` starts it, since a schedule appends a time to every id."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.sweeping import SweepActivities
    from fanout.contracts import SweepOutcome, SweepStart
    from fanout.names import Names
    from pydantic import ValidationError

# The next tick is the retry.
ONCE = RetryPolicy(maximum_attempts=1)
MARGIN = timedelta(seconds=30)


@workflow.defn(name="Sweeper", failure_exception_types=[ValidationError])
class Sweeper:
    """One pass of the sweeper. It ends in time, also when its database hangs, so that a later one can run."""

    @workflow.run
    async def run(self, start: SweepStart) -> SweepOutcome:
        """Answers what the pass came to; Failed where it could not be finished."""
        return await workflow.execute_local_activity_method(
            SweepActivities.sweep,
            start,
            start_to_close_timeout=timedelta(seconds=start.limit_seconds),
            retry_policy=ONCE,
        )


@workflow.defn(name="SweepTick", failure_exception_types=[ValidationError])
class SweepTick:
    """One tick of the schedule."""

    @workflow.run
    async def run(self, start: SweepStart) -> bool:
        """Starts the sweeper; False where one runs already, whoever started it."""
        try:
            await workflow.start_child_workflow(
                Sweeper.run,
                start,
                id=Names(start.deployment).sweeper,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=ParentClosePolicy.ABANDON,
                execution_timeout=timedelta(seconds=start.limit_seconds) + MARGIN,
                static_summary="heals batches that nobody works on",
            )
        except WorkflowAlreadyStartedError:
            return False
        return True
