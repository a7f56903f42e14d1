"""The engine of one worker process: what all its range activities share."""

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from uuid import UUID

from activities.attempt import Attempt, Token
from activities.breakers import Breakers
from activities.claims import Claims
from activities.lease import Lease
from activities.settler import Entry, Settler
from activities.slots import Slots
from fanout.contracts import RangeInput
from fanout.handlers import Ending, Handler, Handlers, Outcome, judge
from fanout.handlers.blocking import Blockage
from fanout.handlers.calls import encode_result
from fanout.handlers.children import refuse_without_pebble
from fanout.handlers.runner import Report, Runner, Work
from fanout.handlers.transactions import Settlement
from fanout.live import Notifier
from fanout.metrics import NO_METERS, Meters
from fanout.points import FaultPoints
from fanout.settings import Settings
from fanout.states import BatchStatus
from fanout.store import (
    OUTAGE,
    ClaimedItem,
    Completion,
    Effects,
    Pool,
    Ticks,
    Verdict,
    WorkerFacts,
    WorkStore,
    check_schema,
    connect_pool,
)
from fanout.tracing import NO_TRACING, Tracing

CLAIM_CONNECTIONS = 6
SETTLE_CONNECTIONS = 2
EFFECT_CONNECTIONS = 20
WATCH_SECONDS = 1.0
WATCH_LIMIT_SECONDS = 5.0
WORK_SECONDS = 15.0
"""How long a claim or a settle, which write some hundred rows at most, may go without an answer."""
TICK_SECONDS = 2.0
LAST_WRITES_SECONDS = 2.0

log = logging.getLogger("fanout.engine")


class Engine:
    """Claims, runs and settles items for any number of attempts; made by `start`, ended by `drain` and `stop`.

    Claims, settling, the lease and ticks have connections of their own, so that none of them waits for another.
    """

    def __init__(
        self,
        settings: Settings,
        worker: WorkerFacts,
        handlers: Handlers,
        pools: list[Pool],
        database_id: UUID,
        points: FaultPoints | None = None,
        meters: Meters = NO_METERS,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        stale_after = timedelta(seconds=settings.heartbeat_seconds)
        self.settings = settings
        self.database_id = database_id
        self.worker_id = worker.id
        self.notifier = Notifier(Ticks(pools[3]), meters.note_notify_lag)
        self.store = WorkStore(pools[0], stale_after, points, self.notifier.note)
        self.slots = Slots(settings.concurrency)
        self.claims = Claims()
        self.meters = meters
        self.tracing = tracing
        self.draining = False
        self._handlers = handlers
        self._pools = pools
        self._settler = Settler(WorkStore(pools[1], stale_after, points, self.notifier.note), self._on_written, points)
        self._lease = Lease(WorkStore(pools[2], stale_after, points), worker, self.claims)
        self._breakers = Breakers(self.store, self._hold_back)
        self._identity = worker.identity
        assert settings.database_url is not None
        url = settings.database_url.get_secret_value()
        self._effects = Effects(url, min(settings.concurrency, EFFECT_CONNECTIONS), points)
        self._encode = partial(encode_result, limit=settings.max_payload_bytes)
        self._runner: Runner[Token] = Runner(
            handlers,
            settings.concurrency,
            settings.max_payload_bytes,
            self._on_reports,
            self._on_blocked,
            self._effects,
            url,
            tracing,
        )
        self._attempts: dict[Attempt, None] = {}
        self._watching = asyncio.create_task(self._watch())
        self._telling: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(
        cls,
        settings: Settings,
        worker: WorkerFacts,
        handlers: Handlers,
        points: FaultPoints | None = None,
        meters: Meters = NO_METERS,
        tracing: Tracing = NO_TRACING,
    ) -> "Engine":
        """Connects, checks the schema and takes out the lease; raises FanoutError where one of these cannot be."""
        refuse_without_pebble(handlers)
        assert settings.database_url is not None
        url = settings.database_url.get_secret_value()
        pools: list[Pool] = []
        try:
            # A renewal without an answer must leave time for another one before the lease is over.
            lease = (1, settings.heartbeat_seconds / 2)
            needs = {
                "claim": (CLAIM_CONNECTIONS, WORK_SECONDS),
                "settle": (SETTLE_CONNECTIONS, WORK_SECONDS),
                "lease": lease,
                "ticks": (1, TICK_SECONDS),
            }
            for purpose, (size, seconds) in needs.items():
                pools.append(await connect_pool(url, purpose=purpose, size=size, answer_seconds=seconds))
            engine = cls(settings, worker, handlers, pools, await check_schema(pools[0]), points, meters, tracing)
            await engine._lease.start()
        except BaseException:
            for pool in pools:
                pool.terminate()
            raise
        return engine

    @property
    def lease_is_fresh(self) -> bool:
        """Whether others take this worker for alive, as far as it knows."""
        return time.monotonic() - self._lease.renewed_at < self.settings.heartbeat_seconds

    @property
    def handler_names(self) -> frozenset[str]:
        """What this worker can run."""
        return frozenset(self._handlers)

    def handler(self, name: str) -> Handler | None:
        """The handler of that name, if this worker has it."""
        return self._handlers.get(name)

    def attempt(self, work: RangeInput, handler: Handler) -> Attempt:
        """A new attempt at a range; ends the engine's notice of it by `forget`."""
        attempt = Attempt(self, self._runner, work, handler)
        self._attempts[attempt] = None
        if self.draining:
            attempt.stop()
        return attempt

    def forget(self, attempt: Attempt) -> None:
        """The attempt has returned."""
        self._attempts.pop(attempt, None)

    def settlement(self, batch_id: UUID, item: ClaimedItem) -> Settlement:
        """The right of an item's handler to settle it by a transaction of its own."""
        return Settlement(self._effects, batch_id, item.seq, item.claim_id, self._encode)

    def settle(self, token: Token, row: Completion | Verdict, settles: bool) -> None:
        """Hands one row's end to the settler; the attempt is told when it is written."""
        self._settler.put(Entry(token, row, settles))

    def _on_written(self, entry: Entry, recorded: bool) -> None:
        attempt, row = entry.token.attempt, entry.row
        self.claims.let_go(row.claim_id)
        attempt.on_written(entry.token.item, row, entry.settles, recorded)
        if not recorded:
            self.meters.count_stale(attempt.handler_name)
        elif entry.settles:
            self.meters.count_settled(attempt.handler_name, "completed" if isinstance(row, Completion) else "failed")

    def _on_reports(self, reports: list[Report[Token]]) -> None:
        for report in reports:
            if report.freed:
                self.slots.give_back(1)
            if report.outcome is not None:
                self._on_outcome(report.work, report.outcome)

    def _on_outcome(self, work: Work[Token], outcome: Outcome) -> None:
        token = work.owner
        self._measure(work, outcome)
        row, settles = judge(work.handler, token.item, outcome)
        self._breakers.observe(token.attempt.batch_id, work.handler, outcome)
        token.attempt.on_outcome(work, outcome)
        if outcome.ending is Ending.SETTLED:
            # By its handler's own transaction, on another loop.
            self.notifier.note(token.attempt.batch_id)
            self._on_written(Entry(token, row, settles), True)
        else:
            self.settle(token, row, settles)

    def _measure(self, work: Work[Token], outcome: Outcome) -> None:
        ending = Ending.COMPLETED if outcome.ending is Ending.SETTLED else outcome.ending
        if work.started is not None:
            self.meters.note_attempt(work.handler.name, ending.value, work.seconds)
        if work.span is not None:
            self.tracing.end(work.span, ending.value, outcome.error.get("type"), work.seconds)
            if outcome.error:
                # On the row it is what the next attempt, wherever it runs, links to.
                outcome.error["traceparent"] = self.tracing.traceparent(work.span)
        if outcome.ending is Ending.LOST:
            self.meters.count_lost(work.handler.name, 1)

    def _hold_back(self, batch_id: UUID) -> None:
        """The batch's breaker opened: what is claimed and has not started is given back."""
        for attempt in list(self._attempts):
            if attempt.batch_id == batch_id:
                attempt.hold_back()

    def _on_blocked(self, blockage: Blockage[Work[Token]]) -> None:
        """A handler that never lets others run is named in the log, and by an event of its batch."""
        who = "a task that a handler started" if blockage.work is None else f"handler {blockage.work.handler.name}"
        state = "was blocked" if blockage.over else "is blocked"
        text = "the handlers' loop %s for %.1f s by %s, %s: other coroutines of this worker stand still"
        fields = None if blockage.work is None else blockage.work.context.log_fields
        log.warning(text, state, blockage.seconds, who, blockage.place, extra=fields)
        if blockage.work is not None and not blockage.over:
            task = asyncio.create_task(self._tell_blocked(blockage.work.owner, blockage.seconds))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_blocked(self, token: Token, seconds: float) -> None:
        item = token.item
        with suppress(*OUTAGE):
            await self.store.tell_blocked(token.attempt.batch_id, item.seq, item.key, seconds, self._identity)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                async with asyncio.timeout(WATCH_LIMIT_SECONDS):
                    await self._look_at_batches()
            except OUTAGE as error:
                log.warning("the states of batches could not be read: %s", type(error).__name__)
            except Exception:
                # Nothing that may end the watch: long items would never hear of a cancel.
                log.exception("the states of batches could not be read")

    async def _look_at_batches(self) -> None:
        """Tells the attempts whose batch moved on: their next claim would find out, a long item would not."""
        # Not those that begin meanwhile: of their batches nothing was read, which is no word of an end.
        watched = list(self._attempts)
        if not watched:
            return
        currency = await self.store.read_currency({attempt.batch_id for attempt in watched})
        for attempt in watched:
            status, epoch = currency.get(attempt.batch_id, (BatchStatus.CANCELLED, 0))
            attempt.on_currency(status, epoch)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Stops claiming, lets running items finish within the grace time, which `hurry` ends, gives the rest back."""
        self.draining = True
        for attempt in list(self._attempts):
            attempt.stop()
        finishing = asyncio.create_task(self._finished_within(self.settings.grace_seconds))
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait((finishing, hurried), return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not finishing.done():
            finishing.cancel()
            finishing = asyncio.create_task(self._finished_within(0))
        await finishing

    async def _finished_within(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for attempt in list(self._attempts):
                group.create_task(attempt.finished_within(seconds))

    async def stop(self) -> int:
        """Ends everything; answers how many rows could not be written, which others will take over."""
        try:
            async with asyncio.timeout(LAST_WRITES_SECONDS):
                await self._settler.drained()
        except TimeoutError:
            log.error("the database did not take the last rows; other workers will take them over")
        self._watching.cancel()
        await self._runner.stop()
        unwritten = await self._settler.stop()
        await self._lease.end()
        await self.notifier.close()
        await asyncio.gather(*(pool.close() for pool in self._pools))
        return unwritten
