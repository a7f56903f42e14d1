"""One activity attempt at one range: claim, run, settle, and say what is left.

An attempt never returns as if rows were done that it could not have: whatever is open at its end is in what it answers
or raises. Each row it claimed ends in exactly one entry for the settler, whatever happens to the attempt.
"""

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from activities.breakers import COUNTED
from activities.rows import RangeRows
from activities.waiting import RangeWaits, why_wait
from fanout.contracts import CANCEL_GRACE, RangeEnd, RangeInput, RangeOutcome, Span
from fanout.handlers import Context, Handler, Outcome, lost_too_often
from fanout.handlers.outcomes import LOST_LIMIT, SUSPECT_DEATHS
from fanout.handlers.runner import Runner, Work
from fanout.logs import about
from fanout.states import BatchStatus
from fanout.store import OUTAGE, ClaimedItem, Completion, Remainder, Verdict

if TYPE_CHECKING:
    from activities.engine import Engine

CLAIM_ROWS = 500
AHEAD_SECONDS = 0.1
"""How much work an attempt claims beyond its free slots while items are short."""
UNWRITTEN_ROWS = 1_000
LONGEST_SECONDS = 300.0
"""After so long an attempt claims no more: a waiting range must not be held by one worker for hours."""
LONGEST_WAIT_SECONDS = 30.0
CROWDED_WAIT_SECONDS = 1.0
"""How long a range may sleep as a pending activity while others wait for its place: no longer than Temporal's grain."""
ELSEWHERE_SECONDS = 0.2
OBEY_SECONDS = 1.0
ANSWER_SECONDS = 0.5
PROBE_DELAY = timedelta(seconds=30)
"""Between two probes of a breaker that this worker's handler does not have."""

log = logging.getLogger("fanout.attempt")


@dataclass(eq=False, slots=True)
class Token:
    """Ties a running item to the attempt that claimed it."""

    attempt: "Attempt"
    item: ClaimedItem


class Attempt:
    """Works through one range on one worker. Made by the engine; `run` is called once."""

    def __init__(self, engine: "Engine", runner: Runner[Token], work: RangeInput, handler: Handler) -> None:
        self.batch_id = work.batch_id
        self.handler_name = work.handler
        self.completed = self.failed = 0
        self._engine = engine
        self._runner = runner
        self._work = work
        self._handler = handler
        self._rows = RangeRows(engine, work)
        self._parent = engine.tracing.here()
        self._position = work.span.lo
        self._running: dict[Work[Token], None] = {}
        self._unwritten = 0
        self._ended = 0
        self._busy_seconds = 0.0
        self._started = time.monotonic()
        self._stopping = False
        self._moved = False
        self._deserted = False
        self._cancelling_since: float | None = None
        self._due_at = math.inf
        self._breaker_in: float | None = None
        self._last_outcome: Outcome | None = None
        self._news = asyncio.Event()
        self._returned = asyncio.Event()
        self._task: asyncio.Task[object] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What a heartbeat tells."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "running": len(self._running),
            "unwritten": self._unwritten - len(self._running),
        }

    async def run(self) -> RangeOutcome:
        """Works until nothing is left to claim; raises RangeWaits when what is left must wait for a moment."""
        self._task = asyncio.current_task()
        try:
            if self._stopping:
                # The worker still takes tasks while it drains, and would be given this one again and again.
                raise RangeWaits("WorkerLeaves", "this worker is about to leave", ELSEWHERE_SECONDS)
            while not self._stopping and await self._claim_some():
                pass
            await self._finish()
            return await self._end()
        except asyncio.CancelledError:
            if self._deserted:
                raise RangeWaits("WorkerLeaves", "the database gave it no answer", ELSEWHERE_SECONDS) from None
            raise
        finally:
            self._returned.set()
            self._engine.forget(self)

    def stop(self) -> None:
        """Claims nothing more; what has not started is given back, what runs goes on."""
        self._stopping = True
        self.hold_back()
        self._news.set()

    def hold_back(self) -> None:
        """Gives back what has not started; what runs goes on, and the attempt with it."""
        self._runner.withdraw(list(self._running))

    async def finished_within(self, seconds: float) -> None:
        """Waits for `run` to return; after that time interrupts what still runs, and at last gives its rows back."""
        if await self._returns_within(seconds):
            return
        self._runner.interrupt(list(self._running))
        if await self._returns_within(OBEY_SECONDS):
            return
        self._runner.abandon(list(self._running))
        if not await self._returns_within(OBEY_SECONDS):
            self._desert()
        if not await self._returns_within(ANSWER_SECONDS) and self._task is not None:
            # An answer of the database that never comes must not keep a worker from leaving.
            self._task.cancel()

    async def _returns_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._returned.wait()
        except TimeoutError:
            return False
        return True

    def _desert(self) -> None:
        """The handlers' loop is blocked, or the database is away: leaves the rows to the settler and returns."""
        self._deserted = True
        for work in self._running:
            item = work.owner.item
            self._engine.settle(work.owner, Verdict(item.seq, item.claim_id), False)
        self._news.set()

    def on_outcome(self, work: Work[Token], outcome: Outcome) -> None:
        """An item of this attempt ended."""
        self._running.pop(work, None)
        self._last_outcome = outcome
        self._ended += 1
        self._busy_seconds += work.seconds
        self._news.set()

    def log_fields(self, item: ClaimedItem) -> dict[str, Any]:
        """The fields of a line about one of its items."""
        work, attempt = self._work, item.attempts + 1
        fields = {"handler": work.handler, "key": work.key, "item_key": item.key, "seq": item.seq, "attempt": attempt}
        return about(work.batch_id, **fields)

    def on_written(self, item: ClaimedItem, row: Completion | Verdict, settles: bool, recorded: bool) -> None:
        """A row's end was written, or refused because another claim has the row."""
        self._unwritten -= 1
        if not recorded:
            log.warning("a stale claim was refused", extra=self.log_fields(item))
        elif isinstance(row, Completion):
            self.completed += 1
        elif settles:
            self.failed += 1
        elif row.delay is not None:
            self._due_at = min(self._due_at, time.monotonic() + row.delay)
        self._news.set()

    def on_currency(self, status: BatchStatus, epoch: int) -> None:
        """What the batch's row says now."""
        if status is BatchStatus.PROCESSING and epoch == self._work.epoch:
            return
        if not self._moved:
            self._moved = True
            self.stop()
        if status in (BatchStatus.PROCESSING, BatchStatus.PAUSED):
            return
        if self._cancelling_since is None:
            self._cancelling_since = time.monotonic()
            self._runner.interrupt(list(self._running))
        elif time.monotonic() - self._cancelling_since > CANCEL_GRACE.total_seconds():
            self._runner.abandon(list(self._running))

    async def _claim_some(self) -> bool:
        """One step: claims and starts rows, or waits for news; False when there is nothing to claim any more."""
        span = self._work.span
        if time.monotonic() - self._started > LONGEST_SECONDS:
            return False
        if self._unwritten >= UNWRITTEN_ROWS:
            return await self._wait_for_news()
        if self._breaker_in is not None:
            return await self._probe()
        if self._position < span.hi:
            return await self._claim_with_slots()
        if self._running or self._unwritten:
            if time.monotonic() < self._due_at:
                return await self._wait_for_news(self._due_at - time.monotonic())
            # Of what runs nobody knows how long it takes: an item whose time has come need not wait for it.
            await self._look_again()
            return True
        remainder = await self._look_again()
        await self._recover(remainder)
        return remainder.claimable > 0 or bool(self._unwritten)

    async def _look_again(self) -> Remainder:
        """Goes back to the first row that may be claimed now, if there is one."""
        remainder = await self._rows.remainder()
        self._due_at = math.inf if remainder.due_in is None else time.monotonic() + max(0.0, remainder.due_in)
        if remainder.claimable:
            assert remainder.first_claimable is not None
            self._position = remainder.first_claimable
        return remainder

    async def _wait_for_news(self, seconds: float | None = None) -> bool:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        return True

    async def _probe(self) -> bool:
        """The batch's breaker is open: tries one item if that is due; False to come back later."""
        if self._running or self._unwritten:
            return await self._wait_for_news()
        assert self._breaker_in is not None
        if self._breaker_in > 0:
            return False
        if not (await self._look_again()).claimable:
            self._breaker_in = None
            return False
        breaker = self._handler.breaker
        delay = PROBE_DELAY if breaker is None else breaker.delay
        self._breaker_in = delay.total_seconds()
        with suppress(*OUTAGE):
            if await self._engine.store.take_probe(self.batch_id, self._work.epoch, delay):
                await self._try_one()
        return not self._stopping

    async def _try_one(self) -> None:
        self._last_outcome = None
        await self._claim_with_slots(probe=True)
        await self._finish()
        tried = self._last_outcome
        if tried is not None and tried.ending in COUNTED and not tried.trips:
            await self._engine.store.close_breaker(self.batch_id)
            self._breaker_in = None

    async def _claim_with_slots(self, probe: bool = False) -> bool:
        slots = await self._take_slots()
        if slots == 0:
            return True
        used = 0
        try:
            items = await self._claim(1 if probe else self._group_rows(slots), probe)
            works = [work for item in items if (work := self._admit(item)) is not None]
            used = min(slots, len(works))
            if works:
                self._runner.start(works, used)
        finally:
            self._engine.slots.give_back(slots - used)
        return True

    async def _take_slots(self) -> int:
        """Waits for slots, but no longer than until the attempt has to stop."""
        taking = asyncio.ensure_future(self._engine.slots.take(self._parallel()))
        while not taking.done() and not self._stopping:
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait((taking, news), return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        if taking.done():
            return taking.result()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        return 0

    @property
    def _item_seconds(self) -> float | None:
        return self._busy_seconds / self._ended if self._ended else None

    def _parallel(self) -> int:
        """How many slots to ask for: a part of them while items are short, so that groups of ranges overlap."""
        left = self._work.span.hi - self._position
        mean = self._item_seconds
        if mean is not None and mean < AHEAD_SECONDS / 4:
            return min(left, max(1, self._engine.slots.total // 4))
        return left

    def _group_rows(self, slots: int) -> int:
        mean = self._item_seconds
        if mean is None:
            return min(slots, CLAIM_ROWS)
        return max(min(slots, CLAIM_ROWS), min(CLAIM_ROWS, int(slots * AHEAD_SECONDS / max(mean, 1e-6))))

    async def _claim(self, rows: int, probe: bool) -> list[ClaimedItem]:
        """Claims from the position on."""
        claim_id = uuid4()
        span = (self._position, min(self._work.span.hi, self._position + 2 * rows))
        # Before the statement: until its rows are known, no other attempt of this worker may take them for lost.
        self._hold(claim_id, 1)
        try:
            claim = await self._rows.claim(claim_id, span, rows, probe)
            self._hold(claim_id, len(claim.items))
        finally:
            self._engine.claims.let_go(claim_id)
        items = claim.items
        self._unwritten += len(items)
        if not claim.current:
            self._moved = True
            self.stop()
        if not probe:
            self._breaker_in = claim.breaker_in
        if self._breaker_in is None or probe:
            self._position = items[-1].seq + 1 if len(items) == rows else span[1]
        return items

    def _admit(self, item: ClaimedItem) -> Work[Token] | None:
        """Makes a claimed row ready to run, or fails it at once when its executions died too often."""
        if item.crashes >= LOST_LIMIT:
            self._engine.settle(Token(self, item), lost_too_often(item), True)
            return None
        context = Context(
            batch_id=self.batch_id,
            handler=self._work.handler,
            key=self._work.key,
            item_key=item.key,
            seq=item.seq,
            attempt=item.attempts + 1,
            epoch=self._work.epoch,
            settlement=self._engine.settlement(self.batch_id, item) if self._handler.transacts else None,
        )
        isolated = item.crashes >= SUSPECT_DEATHS and self._runner.isolates
        token = Token(self, item)
        work = Work(token, self._handler, item.payload, context, isolated, self._parent, item.traceparent)
        self._running[work] = None
        if self._stopping:
            # Claimed while the order to stop came: the runner gives it back unstarted.
            self._runner.withdraw([work])
        return work

    async def _finish(self) -> None:
        """Lets what runs end, and everything be written; a worker that must go leaves the writing to its settler."""
        while (self._running or self._unwritten) and not self._deserted:
            await self._wait_for_news()

    async def _recover(self, remainder: Remainder) -> None:
        """Gives back rows that a claim of this worker took and nobody here knows of: its answer was lost for good."""
        for claim_id in remainder.own_claims:
            if self._engine.claims.holds(claim_id):
                continue
            with suppress(*OUTAGE):
                for item in await self._rows.of_claim(claim_id):
                    self._hold(claim_id, 1)
                    self._unwritten += 1
                    self._engine.settle(Token(self, item), Verdict(item.seq, claim_id), False)

    def _hold(self, claim_id: UUID, rows: int) -> None:
        self._engine.claims.hold(claim_id, rows, self.handler_name, self._work.batch_id)

    async def _end(self) -> RangeOutcome:
        remainder = await self._rows.remainder()
        if remainder.open == 0:
            return self._outcome(RangeEnd.DONE)
        assert remainder.first is not None
        rest = Span(lo=remainder.first, hi=self._work.span.hi)
        if self._stopping or (remainder.claimable and self._breaker_in is None):
            return self._outcome(RangeEnd.YIELDED, rest)
        wait = why_wait(remainder, self._breaker_in)
        if wait.seconds > (CROWDED_WAIT_SECONDS if self._work.crowded else LONGEST_WAIT_SECONDS):
            return self._outcome(RangeEnd.WAITING, rest, wait.seconds)
        raise wait

    def _outcome(self, end: RangeEnd, rest: Span | None = None, due: float | None = None) -> RangeOutcome:
        return RangeOutcome(
            end=end,
            completed=self.completed,
            failed=self.failed,
            ended=self._ended,
            item_seconds=self._item_seconds or 0.0,
            elapsed_seconds=time.monotonic() - self._started,
            rest=rest,
            due_seconds=due,
        )
