"""`Shard`: the child workflow that works through a part of a big batch, so that no history grows too long."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fanout.contracts import BatchView, Progress, RangeOutcome, ShardInput, ShardOutcome
    from pydantic import ValidationError

from workflows.details import shard_details
from workflows.window import Window


@workflow.defn(name="Shard", failure_exception_types=[ValidationError])
class Shard:
    """Runs its spans to the end, over as many runs as its history needs; ends early when the batch moves on."""

    @workflow.init
    def __init__(self, shard: ShardInput) -> None:
        self._total = sum(span.size for span in shard.spans)
        self._completed = self._failed = self._cancelled = 0
        self._window = Window(shard, self._on_outcome, self._on_view)

    @workflow.run
    async def run(self, shard: ShardInput) -> ShardOutcome:
        """Works through its spans."""
        await self._window.run()
        if self._window.rest and not self._window.stopped:
            workflow.continue_as_new(shard.model_copy(update={"spans": self._window.rest, "pace": self._window.pace}))
        return ShardOutcome(
            completed=self._completed,
            failed=self._failed,
            cancelled=self._cancelled,
            stopped=self._window.stopped,
            pace=self._window.pace,
        )

    @workflow.signal(description="Look at the batch's row again")
    async def changed(self) -> None:
        """The batch may have moved on."""
        self._window.wake()

    @workflow.query(description="What this shard has seen settle in this run")
    def progress(self) -> Progress:
        """Counts of this shard's current run."""
        return Progress(
            status="processing",
            total=self._total,
            completed=self._completed,
            failed=self._failed,
            cancelled=self._cancelled,
        )

    def _on_outcome(self, outcome: RangeOutcome) -> None:
        self._completed += outcome.completed
        self._failed += outcome.failed
        self._cancelled += outcome.cancelled
        workflow.set_current_details(shard_details(self.progress(), workflow.now()))

    def _on_view(self, view: BatchView) -> None:
        """A shard counts only what its own ranges did."""
