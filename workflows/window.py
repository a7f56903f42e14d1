"""The sliding window: works spans off as ranges, one activity each, a bounded number at once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.batches import BatchActivities
    from activities.ranges import RangeActivities
    from fanout.contracts import (
        BatchReference,
        BatchView,
        KeysRequest,
        RangeEnd,
        RangeInput,
        RangeOutcome,
        ShardInput,
        Span,
    )
    from fanout.markdown import summary
    from fanout.states import BatchStatus

from workflows.pace import PROBE_SECONDS, next_pace, window_size

# Waits count as attempts, so the policy must not grow with them: what failed after five waits would come back late.
RANGE_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0, maximum_attempts=0)
# No limit may end healthy work: the heartbeat decides.
RANGE_LIMIT = timedelta(days=3650)
LOCAL_LIMIT = timedelta(minutes=15)
LOCAL_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))
NAMED_RANGES = 200
NAME_BYTES = 200
LOOK_SECONDS = 30.0

Activities = TypeVar("Activities")
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Window:
    """Runs the ranges of some spans until all are done, or until the batch moved on and all that is pending returned.

    It looks at the batch's row when it is woken, when a range yields and every half minute, and stops by itself when
    the batch is no longer processing or has another epoch.
    """

    def __init__(
        self,
        shard: ShardInput,
        on_outcome: Callable[[RangeOutcome], None],
        on_view: Callable[[BatchView], None],
        turn: int = 0,
    ) -> None:
        self.turn = turn
        self.pace = shard.pace
        self.stopped = False
        self._shard = shard
        self._on_outcome = on_outcome
        self._on_view = on_view
        self._todo: deque[Span] = deque(shard.spans)
        self._waiting: list[tuple[float, Span]] = []
        self._pending = 0
        self._slots, self._workers = shard.slots, shard.workers
        self._finished: list[tuple[Span, RangeOutcome]] = []
        self._failure: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._names: dict[int, str] = {}
        self._woken = False
        self._looked_at = workflow.time()
        self._probe_until = workflow.time() + PROBE_SECONDS

    @property
    def rest(self) -> list[Span]:
        """The spans that still hold open rows once `run` has returned."""
        return [*self._todo, *(span for _, span in self._waiting)]

    def wake(self) -> None:
        """Asks for a look at the batch's row."""
        self._woken = True

    async def run(self) -> None:
        """Works until nothing is pending and nothing is left, or stopped, or the history should be continued."""
        while True:
            if self._woken or workflow.time() - self._looked_at > LOOK_SECONDS:
                await self._look()
            while self._todo and self._pending < self._limit and not self._drains:
                await self._schedule()
            if not self._pending and (self._drains or not (self._todo or self._waiting)):
                break
            await self._wait()
            self._collect()
        if self._failure is not None:
            raise self._failure

    @property
    def _drains(self) -> bool:
        continuing = workflow.info().is_continue_as_new_suggested()
        return self.stopped or self._failure is not None or continuing

    @property
    def _limit(self) -> int:
        return window_size(self.pace, self._slots, self._workers, self._probing)

    @property
    def _probing(self) -> bool:
        return self.pace.item_seconds is None and workflow.time() < self._probe_until

    @property
    def _crowded(self) -> bool:
        """Whether there is more to do than may be pending at once: then nothing should sleep in its place."""
        size = self._shard.fixed_range_size or self.pace.range_size
        left = sum(-(-span.size // size) for span in self.rest)
        return self._pending + left > window_size(self.pace, self._slots, self._workers, probing=False)

    async def _look(self) -> None:
        self._woken = False
        self._looked_at = workflow.time()
        reference = BatchReference(batch_id=self._shard.batch_id, database_id=self._shard.database_id)
        view = await local(BatchActivities.look_at_batch, reference)
        self._slots, self._workers = view.slots, view.workers
        self.stopped = view.status is not BatchStatus.PROCESSING or view.epoch != self._shard.epoch
        self._on_view(view)
        if self.stopped:
            # Ranges that wait for a worker end at once; attempts that run claim no more and finish what they hold.
            self.turn += 1
            for task in self._tasks:
                task.cancel()

    async def _wait(self) -> None:
        """Until a range returns, somebody wakes us, or the first sleeping range is due."""
        moments = [at for at, _ in self._waiting] if not self._drains else []
        if self._probing and self._todo:
            moments.append(self._probe_until)
        timeout = max(0.0, min(moments) - workflow.time()) if moments else None
        with suppress(TimeoutError):
            await workflow.wait_condition(self._has_news, timeout=timeout)

    def _has_news(self) -> bool:
        return bool(self._finished) or self._woken or (self._drains and not self._pending)

    async def _schedule(self) -> None:
        span = self._todo[0]
        size = min(self._shard.fixed_range_size or self.pace.range_size, span.size)
        part = Span(lo=span.lo, hi=span.lo + size)
        if size == 1 and part.lo not in self._names:
            await self._read_names(span)
        self._todo.popleft()
        if part.hi < span.hi:
            self._todo.appendleft(Span(lo=part.hi, hi=span.hi))
        self._pending += 1
        self._tasks.append(asyncio.create_task(self._run_range(part)))

    async def _read_names(self, span: Span) -> None:
        page = Span(lo=span.lo, hi=min(span.hi, span.lo + NAMED_RANGES))
        request = KeysRequest(batch_id=self._shard.batch_id, database_id=self._shard.database_id, span=page)
        keys = await local(BatchActivities.read_item_keys, request)
        self._names = dict(zip(range(page.lo, page.hi), keys, strict=True))

    async def _run_range(self, span: Span) -> None:
        shard, name = self._shard, self._name(span)
        try:
            outcome = await workflow.execute_activity_method(
                RangeActivities.process_range,
                RangeInput(
                    batch_id=shard.batch_id,
                    database_id=shard.database_id,
                    handler=shard.handler,
                    key=shard.key,
                    epoch=shard.epoch,
                    span=span,
                    crowded=self._crowded,
                ),
                heartbeat_timeout=timedelta(seconds=shard.heartbeat_seconds),
                start_to_close_timeout=RANGE_LIMIT,
                retry_policy=RANGE_RETRY,
                activity_id=self._activity_id(span, name),
                summary=summary(name),
            )
        except BaseException as error:
            if is_cancelled_exception(error):
                # By `_look`, but the batch may have been resumed since: look once more before anything is scheduled.
                self._todo.append(span)
                self._woken = True
            else:
                self._failure = self._failure or error
        else:
            self._finished.append((span, outcome))
        finally:
            self._pending -= 1

    def _name(self, span: Span) -> str:
        """What the Web UI calls the range's activity: the item's key where it is a single one."""
        if span.size > 1:
            return f"items {span.lo} to {span.hi - 1}"
        encoded = self._names.pop(span.lo, "").encode()
        if len(encoded) <= NAME_BYTES:
            return encoded.decode()
        return "…" + encoded[-NAME_BYTES:].decode(errors="ignore")

    def _activity_id(self, span: Span, name: str) -> str:
        """No pending activity has it: a range that was cancelled stays pending on the server while its item runs."""
        told = f"{span.lo} {name}" if span.size == 1 else name
        return told if self.turn == 0 else f"{told}, turn {self.turn + 1}"

    def _collect(self) -> None:
        finished, self._finished = self._finished, []
        self._tasks = [task for task in self._tasks if not task.done()]
        for span, outcome in finished:
            passed = span.size - (outcome.rest.size if outcome.rest is not None else 0)
            # Items that ran and are to come again tell as much of the pace as those that settled.
            passed = max(passed, min(outcome.ended, span.size))
            self.pace = next_pace(self.pace, outcome, passed, self._shard.fixed_range_size)
            self._put_back(outcome)
            self._on_outcome(outcome)
            # They may have been too many: without a look, a window that waits for hours would not hear of it.
            self._woken = self._woken or (outcome.failed > 0 and self._shard.has_budget)
        now = workflow.time()
        self._todo.extend(span for at, span in self._waiting if at <= now)
        self._waiting = [(at, span) for at, span in self._waiting if at > now]

    def _put_back(self, outcome: RangeOutcome) -> None:
        if outcome.rest is None:
            return
        if outcome.end is RangeEnd.WAITING:
            self._waiting.append((workflow.time() + (outcome.due_seconds or 0.0), outcome.rest))
            return
        self._todo.append(outcome.rest)
        self._woken = True


async def local(
    method: Callable[[Activities, Request], Awaitable[Answer]],
    request: Request,
    cancellation: workflow.ActivityCancellationType = workflow.ActivityCancellationType.TRY_CANCEL,
) -> Answer:
    """Runs one of the short activities at once, beside any queued ranges; retried until the database answers."""
    return await workflow.execute_local_activity_method(
        method,
        request,
        start_to_close_timeout=LOCAL_LIMIT,
        retry_policy=LOCAL_RETRY,
        cancellation_type=cancellation,
    )
