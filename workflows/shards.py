"""Divides a big batch among child workflows, a few at a time."""

import asyncio
from collections import deque
from collections.abc import Callable

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle

with workflow.unsafe.imports_passed_through():
    from fanout.contracts import ShardInput, ShardOutcome, Span
    from fanout.logs import about
    from fanout.names import CHANGED_SIGNAL, shard_workflow_id

from workflows.shard import Shard

SHARDED_ITEMS = 5_000
"""A batch with more open items than this is divided."""
SHARD_RANGES = 20
SHARDS_AT_ONCE = 2


class Shards:
    """Runs spans as shards until all have returned; a shard that was lost leaves its rows open for the next round."""

    def __init__(self, shard: ShardInput, on_outcome: Callable[[ShardOutcome], None]) -> None:
        self.pace = shard.pace
        self.stopped = False
        self._shard = shard
        self._on_outcome = on_outcome
        self._todo: deque[Span] = deque(shard.spans)
        self._running: list[ChildWorkflowHandle[Shard, ShardOutcome]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._pending = 0
        self._started = 0
        self._returned = 0
        self._failure: BaseException | None = None
        self._woken = False

    def wake(self) -> None:
        """Asks every running shard to look at the batch's row."""
        self._woken = True

    async def run(self) -> None:
        """Works until every span was given to a shard and every shard has returned, or the batch moved on."""
        while True:
            await self._pass_on_news()
            while self._todo and self._pending < SHARDS_AT_ONCE and not self._drains:
                self._pending += 1
                self._tasks.append(asyncio.create_task(self._run_shard(self._take())))
            if not self._pending and (self._drains or not self._todo):
                break
            seen = self._returned
            await workflow.wait_condition(lambda seen=seen: self._returned > seen or self._woken)  # type: ignore[misc]
            self._tasks = [task for task in self._tasks if not task.done()]
        if self._failure is not None:
            raise self._failure

    @property
    def _drains(self) -> bool:
        continuing = workflow.info().is_continue_as_new_suggested()
        return self.stopped or self._failure is not None or continuing

    async def _pass_on_news(self) -> None:
        if not self._woken:
            return
        self._woken = False
        for child in list(self._running):
            try:
                await child.signal(CHANGED_SIGNAL)
            except ApplicationError:
                workflow.logger.info(
                    "shard %s ended before it could be told", child.id, extra=about(self._shard.batch_id)
                )

    def _take(self) -> list[Span]:
        """The next shard's spans: about 20 ranges of the size that the ranges so far have reached."""
        left = max(SHARDED_ITEMS, self.pace.range_size * SHARD_RANGES)
        taken: list[Span] = []
        while self._todo and left > 0:
            span = self._todo.popleft()
            part = Span(lo=span.lo, hi=min(span.hi, span.lo + left))
            if part.hi < span.hi:
                self._todo.appendleft(Span(lo=part.hi, hi=span.hi))
            taken.append(part)
            left -= part.size
        return taken

    async def _run_shard(self, spans: list[Span]) -> None:
        try:
            child = await self._start(spans)
            self._running.append(child)
            try:
                outcome = await child
            finally:
                self._running.remove(child)
        except ChildWorkflowError as error:
            # Ended from outside, by an operator's reset or terminate: the rows know what is left of it. An error of the
            # shard's own would only come back.
            if isinstance(error.cause, ApplicationError):
                self._failure = self._failure or error.cause
        except BaseException as error:
            self._failure = self._failure or error
        else:
            self.pace = outcome.pace
            self.stopped = self.stopped or outcome.stopped
            self._on_outcome(outcome)
        finally:
            self._pending -= 1
            self._returned += 1

    async def _start(self, spans: list[Span]) -> ChildWorkflowHandle[Shard, ShardOutcome]:
        shard = self._shard.model_copy(update={"spans": spans, "pace": self.pace})
        while True:
            number, self._started = self._started, self._started + 1
            try:
                return await workflow.start_child_workflow(
                    Shard.run,
                    shard,
                    id=shard_workflow_id(workflow.info().workflow_id, shard.epoch, number),
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    static_summary=f"items {spans[0].lo} to {spans[-1].hi - 1}",
                    search_attributes=workflow.info().typed_search_attributes,
                )
            except WorkflowAlreadyStartedError:
                # Left by an earlier run of this batch that was reset: the next number is free.
                continue
