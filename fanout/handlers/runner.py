"""Runs handlers beside the engine: a second thread with a loop of its own, so that no handler can starve a heartbeat.

The engine's loop hands over groups of items and gets outcomes back in bunches. It also keeps every item's deadline,
by a clock that stands still while the handlers' loop is blocked, so that an item does not time out for its
neighbour's sake.
"""

import asyncio
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from fanout.handlers.blocking import Blockage, LoopWatch
from fanout.handlers.calls import call_blocking, call_on_loop
from fanout.handlers.children import Children, died, died_alone
from fanout.handlers.context import Cancellation, Context
from fanout.handlers.definition import Handler, Mode
from fanout.handlers.outcomes import Ending, Outcome, ProcessDied, describe
from fanout.handlers.registry import Handlers
from fanout.store import Effects
from fanout.tracing import NO_TRACING, Tracing

ISOLATED_ITEMS = 4
"""How many items whose executions died a worker runs at once, each alone in a child process."""
TICK_SECONDS = 0.1
OBEY_SECONDS = 1.0
"""How long a handler that overran its deadline may take to notice its cancellation before the row is given back."""


log = logging.getLogger("fanout.runner")

Owner = TypeVar("Owner")


@dataclass(eq=False, slots=True)
class Work(Generic[Owner]):
    """One claimed item on its way through the runner; `owner` is the engine's own note.

    An `isolated` item runs in a child process whatever its handler's mode, one of at most four at once. Its `span` is a
    child of `parent` and linked to `previous`, the span of an earlier attempt, where attempts are traced.
    """

    owner: Owner
    handler: Handler
    payload: str
    context: Context
    isolated: bool = False
    parent: Any = None
    previous: str | None = None
    span: Any = None
    started: float | None = None
    deadline: float | None = None
    running: "asyncio.Task[Outcome] | Future[Outcome] | None" = None
    stop: str | None = None
    reported: bool = False
    seconds: float = 0.0

    @property
    def mode(self) -> Mode:
        """Where it runs."""
        return "process" if self.isolated else self.handler.mode


# Not frozen, as other shapes of which every item makes one: a frozen one takes twice as long to make.
@dataclass(slots=True)
class Report(Generic[Owner]):
    """What the runner tells the engine: an item ended (`outcome`), a slot is free again (`freed`), or both."""

    work: Work[Owner]
    outcome: Outcome | None
    freed: bool


@dataclass(eq=False, slots=True)
class _Group(Generic[Owner]):
    waiting: deque[Work[Owner]] = field(default_factory=deque)


class Runner(Generic[Owner]):
    """Runs items on the handlers' loop, in threads and in child processes.

    Every item that is started ends in exactly one report with an outcome, and every slot in exactly one that frees it.
    `on_reports` is called on the engine's loop, and so is `on_blocked`, when the handlers' loop stands still for two
    seconds or more, and again when it goes on. All public methods belong to the engine's loop.
    """

    def __init__(
        self,
        handlers: Handlers,
        concurrency: int,
        result_limit: int,
        on_reports: Callable[[list[Report[Owner]]], None],
        on_blocked: Callable[[Blockage[Work[Owner]]], None] = lambda blockage: None,
        effects: Effects | None = None,
        database_url: str | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._tracing = tracing
        self._handlers = handlers
        self._limit = result_limit
        self._on_reports = on_reports
        self._engine = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="fanout-handler")
        self._children = Children(handlers.modules, min(concurrency, 2 * (os.cpu_count() or 1)), database_url)
        self._suspects = Children(handlers.modules, ISOLATED_ITEMS, database_url)
        self._effects = effects
        self._folder = Path(tempfile.mkdtemp(prefix="fanout-"))
        self._outbox: deque[Report[Owner]] = deque()
        self._signalled = False
        self._ending = False
        self._running: dict[Work[Owner], None] = {}
        self._thread = threading.Thread(target=self._run_loop, name="fanout-handlers", daemon=True)
        self._thread.start()
        self._watch: LoopWatch[Work[Owner]] = LoopWatch(self._loop, self._thread, on_blocked)
        self._ticker = asyncio.create_task(self._tick())

    @property
    def isolates(self) -> bool:
        """Whether items can be run in isolation: it takes the package of the extra `process`."""
        return self._suspects.available

    def start(self, works: Iterable[Work[Owner]], parallel: int) -> None:
        """Runs `works` in order, at most `parallel` at once: that many slots are freed one by one at the end."""
        self._loop.call_soon_threadsafe(self._admit, _Group(deque(works)), parallel)

    def withdraw(self, works: Iterable[Work[Owner]]) -> None:
        """Ends those that have not started as interrupted, also those that wait for a child process."""
        self._loop.call_soon_threadsafe(self._withdraw, list(works))

    def interrupt(self, works: Iterable[Work[Owner]]) -> None:
        """Asks running handlers to end: coroutines are cancelled, the others see `ctx.cancelled`."""
        self._loop.call_soon_threadsafe(self._interrupt, list(works))

    def abandon(self, works: Iterable[Work[Owner]]) -> None:
        """Ends what still runs as interrupted, whether or not it stops; child processes are killed."""
        self._loop.call_soon_threadsafe(self._abandon, list(works))

    async def stop(self) -> None:
        """Ends threads of control that can be ended; handlers that ignore it die with the process."""
        self._ticker.cancel()
        for children in (self._children, self._suspects):
            await asyncio.to_thread(children.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._ending = True
        if self._effects is not None:
            self._loop.call_soon_threadsafe(self._effects.terminate)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, OBEY_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    # From here on: the handlers' loop.

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._ending:
            try:
                self._loop.run_forever()
            except BaseException:
                # From a task of a handler's own that raised SystemExit or KeyboardInterrupt: others go on. What it
                # raised may raise again when it is shown.
                with suppress(BaseException):
                    log.exception("a task that a handler started tried to end the handlers' loop")
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _admit(self, group: _Group[Owner], parallel: int) -> None:
        for _ in range(parallel):
            self._next(group)

    def _next(self, group: _Group[Owner], previous: Work[Owner] | None = None, outcome: Outcome | None = None) -> None:
        """Gives a slot to the group's next item, or back; reports what the slot's previous item came to."""
        following = None
        while group.waiting and following is None:
            candidate = group.waiting.popleft()
            following = None if candidate.reported else candidate
        if previous is not None and previous.reported:
            outcome = None
        if previous is not None:
            previous.reported = True
        if following is None:
            self._report(Report(previous or _NOBODY, outcome, freed=True))
            return
        if previous is not None and outcome is not None:
            self._report(Report(previous, outcome, freed=False))
        self._begin(group, following)

    def _begin(self, group: _Group[Owner], work: Work[Owner]) -> None:
        self._running[work] = None
        work.started = time.monotonic()
        timeout = work.handler.timeout.total_seconds()
        work.span = self._tracing.begin(work.context, work.parent, work.previous)
        try:
            if work.mode == "loop":
                work.deadline = self._watch.clock + timeout
                call = call_on_loop(work.handler, work.payload, work.context, self._limit)
                task = self._loop.create_task(call, context=self._tracing.inside(work.span))
                work.running = task
                task.add_done_callback(lambda done: self._ended(group, work, done))
                return
            if work.mode == "thread":
                work.deadline = work.started + timeout
            future = self._begin_aside(work)
        except Exception as error:
            outcome = Outcome(Ending.TRANSIENT, error=describe(error, "transient", work.context.attempt))
            # Not from here: a group of 500 such items would recurse that deep.
            self._loop.call_soon(self._finish, group, work, outcome)
            return
        work.running = future
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._ended, group, work, done))

    def _begin_aside(self, work: Work[Owner]) -> Future[Outcome]:
        context = work.context
        if work.mode == "thread":
            run = (self._tracing.inside(work.span) or copy_context()).run
            return self._threads.submit(run, call_blocking, work.handler, work.payload, context, self._limit)
        file = self._folder / f"{context.batch_id}-{context.seq}-{time.monotonic_ns()}"
        work.context = replace(context, cancellation=Cancellation(file))
        names = ("batch_id", "handler", "key", "item_key", "seq", "attempt", "epoch")
        facts = {name: getattr(context, name) for name in names}
        facts["claim_id"] = None if context.settlement is None else context.settlement.claim_id
        facts["traceparent"] = self._tracing.traceparent(work.span)
        children = self._suspects if work.isolated else self._children
        return children.schedule(work.handler.name, work.payload, facts, file, self._limit)

    def _ended(self, group: _Group[Owner], work: Work[Owner], done: "asyncio.Task[Outcome] | Future[Outcome]") -> None:
        outcome = self._outcome_of(work, done)
        if work.stop == "interrupt" and outcome.ending is Ending.TRANSIENT:
            # What a handler makes of its own cancellation is no failure of the item.
            outcome = Outcome(Ending.INTERRUPTED)
        self._finish(group, work, outcome)

    def _outcome_of(self, work: Work[Owner], done: "asyncio.Task[Outcome] | Future[Outcome]") -> Outcome:
        attempt = work.context.attempt
        if done.cancelled():
            if work.stop is None:
                error = asyncio.CancelledError("the handler's task was cancelled, by itself or by another handler")
                return Outcome(Ending.TRANSIENT, error=describe(error, "transient", attempt))
            return self._stopped(work)
        raised = done.exception()
        if raised is None:
            return done.result()
        if died(raised):
            cause = ProcessDied(f"the child process that ran this item died: {raised}")
            return Outcome(Ending.LOST, error=describe(cause, "lost", attempt), witnessed=died_alone(raised))
        return Outcome(Ending.TRANSIENT, error=describe(raised, "transient", attempt))

    def _stopped(self, work: Work[Owner]) -> Outcome:
        if work.stop == "timeout":
            limit = work.handler.timeout.total_seconds()
            error = TimeoutError(f"the handler ran longer than its limit of {limit:g} s")
            return Outcome(Ending.TRANSIENT, error=describe(error, "timeout", work.context.attempt))
        return Outcome(Ending.INTERRUPTED)

    def _finish(self, group: _Group[Owner], work: Work[Owner], outcome: Outcome) -> None:
        self._running.pop(work, None)
        assert work.started is not None
        work.seconds = time.monotonic() - work.started
        self._next(group, work, outcome)

    def _withdraw(self, works: list[Work[Owner]]) -> None:
        for work in works:
            if work.started is None:
                self._report_once(work, Outcome(Ending.INTERRUPTED))
            else:
                self._spare(work)

    def _spare(self, work: Work[Owner]) -> None:
        """Ends an item that waits for a child process, which will find it cancelled; its slot is free after that."""
        running = work.running
        if work.mode == "process" and running is not None and not _has_begun(running):
            work.stop = work.stop or "interrupt"
            work.context.cancellation.request()
            self._report_once(work, Outcome(Ending.INTERRUPTED))

    def _interrupt(self, works: Iterable[Work[Owner]], reason: str = "interrupt") -> None:
        for work in works:
            if work.started is None or work.reported or work.stop is not None:
                continue
            work.stop = reason
            work.context.cancellation.request()
            if isinstance(work.running, asyncio.Task):
                work.running.cancel()
            self._spare(work)

    def _abandon(self, works: Iterable[Work[Owner]]) -> None:
        for work in works:
            work.stop = work.stop or "interrupt"
            self._report_once(work, self._stopped(work))
            work.context.cancellation.request()
            if work.running is not None and work.mode != "thread":
                work.running.cancel()

    def _report_once(self, work: Work[Owner], outcome: Outcome) -> None:
        if not work.reported:
            work.reported = True
            self._report(Report(work, outcome, freed=False))

    def _report(self, report: Report[Owner]) -> None:
        self._outbox.append(report)
        if not self._signalled:
            self._signalled = True
            self._engine.call_soon_threadsafe(self._deliver)

    # From here on: the engine's loop.

    def _deliver(self) -> None:
        self._signalled = False
        reports = []
        while self._outbox:
            reports.append(self._outbox.popleft())
        if reports:
            self._on_reports(reports)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._watch.tick(now, list(self._running))
            for work in list(self._running):
                self._keep_deadline(work, now)

    def _keep_deadline(self, work: Work[Owner], now: float) -> None:
        if work.context.committing:
            # Whether its row is settled is being looked up; nothing may be said of it before.
            return
        if work.deadline is None:
            # In a child process the time runs from the moment that a child takes the item up.
            if work.running is not None and _has_begun(work.running):
                work.deadline = now + (0 if work.reported else work.handler.timeout.total_seconds())
            return
        overrun = (self._watch.clock if work.mode == "loop" else now) - work.deadline
        if overrun > 0:
            self._loop.call_soon_threadsafe(self._interrupt, [work], "timeout")
        if overrun > OBEY_SECONDS or (overrun > 0 and work.mode == "process"):
            self._loop.call_soon_threadsafe(self._abandon, [work])


def _has_begun(running: "asyncio.Task[Outcome] | Future[Outcome]") -> bool:
    return isinstance(running, asyncio.Task) or running.running() or running.done()


_NOBODY: Work[Any] = Work(None, None, "", None)  # type: ignore[arg-type]
