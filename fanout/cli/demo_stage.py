"""The demo's play: a batch, a worker that is killed in the middle of it, and another that goes on."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from uuid import uuid4

from fanout.cli.board import progress_view
from fanout.cli.crew import WorkerChild
from fanout.cli.demo_report import Plan, Proof
from fanout.cli.output import Output
from fanout.cli.watch import new_failures, polls
from fanout.client import BatchHandle, FanoutClient, Item, Status
from fanout.devstack import Stack
from fanout.settings import Settings
from fanout.store import Pool
from fanout.store.audit import count_recorded_twice

HANDLER = "demo.extract"
MODULES = ("examples.documents.demo_handlers", "examples.documents.handlers")
# Short, so that a dead worker's papers are taken over soon; 10 s is the default.
HEARTBEAT_SECONDS = 3.0
# Slow enough that the kill always meets running work.
CONCURRENCY = 4
PAUSE_SECONDS = 0.6
POLL_SECONDS = 0.05
START_SECONDS = 60.0
GIVE_UP_SECONDS = 300.0
# Whatever the caller has set: the demo is the same everywhere.
WORKER_SETTINGS = {
    **{f"FANOUT_{name.upper()}": "" for name in Settings.model_fields if name not in ("database_url", "home")},
    "FANOUT_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
}
KILLED = (
    "the worker was killed (SIGKILL) with {running} papers in work; another one takes them over once its heartbeat "
    f"is {HEARTBEAT_SECONDS:g} s old (10 s by default)"
)


class Stage:
    """The demo's batch and its workers, which all end with the block that `workers` belongs to."""

    def __init__(self, output: Output, client: FanoutClient, stack: Stack, workers: ExitStack, plan: Plan) -> None:
        self._output = output
        self._plan = plan
        self._client = client
        self._stack = stack
        self._workers = workers
        self._killed_at: Status | None = None
        """How far the batch was when its worker was killed."""

    async def play(self, pool: Pool) -> Proof:
        """Runs the batch to its close, with one worker killed on the way."""
        worker = await self._ready(*self._start_worker())
        items = [Item({**item.payload, "pause_seconds": PAUSE_SECONDS}, key=item.key) for item in self._plan.papers]
        batch = await self._client.submit(HANDLER, items, title="the demo's papers", origin="cli")
        async with within(GIVE_UP_SECONDS, "the batch did not close"):
            status = await self._follow(batch, worker)
        return Proof(
            status=status,
            plan=self._plan,
            rows=[row async for row in batch.results()],
            recorded_twice=await count_recorded_twice(pool, batch.batch_id),
            violations=await self._client.store.read_violations(batch.batch_id),
            killed_at=self._killed_at,
        )

    async def _follow(self, batch: BatchHandle, worker: WorkerChild) -> Status:
        with progress_view(self._output.notes, self._output.note) as view:
            async for status in polls(batch, every=POLL_SECONDS):
                view.update(status, await new_failures(self._client, batch, view))
                if self._killed_at is None and (killed := await self._try_to_kill(batch, worker, status)):
                    self._killed_at = killed
                    view.say(KILLED.format(running=killed.processing))
                    worker, _ = self._start_worker()
                refuse_end(worker)
        return status

    def _start_worker(self) -> tuple[WorkerChild, str]:
        identity = f"demo-{uuid4().hex[:6]}"
        arguments = ["--handlers", *MODULES, "--identity", identity, "--concurrency", str(CONCURRENCY)]
        log = self._stack.home / "worker.log"
        worker = WorkerChild(self._stack, arguments, WORKER_SETTINGS, log)
        return self._workers.enter_context(worker), identity

    async def _ready(self, worker: WorkerChild, identity: str) -> WorkerChild:
        async with within(START_SECONDS, "the worker was not ready"):
            while identity not in [row.facts.identity for row in await self._client.workers()]:
                refuse_end(worker)
                await asyncio.sleep(POLL_SECONDS)
        return worker

    async def _try_to_kill(self, batch: BatchHandle, worker: WorkerChild, seen: Status) -> Status | None:
        """Kills the worker if papers are running at that very moment, and says how far the batch was.

        The worker stands still while they are counted.
        """
        if not is_ripe(seen):
            return None
        worker.send(signal.SIGSTOP)
        status = await batch.progress()
        if not is_ripe(status):
            worker.send(signal.SIGCONT)
            return None
        worker.kill()
        # Once more: what the worker had sent before it stood still may have been written since.
        return await batch.progress()


def is_ripe(status: Status) -> bool:
    """Whether a quarter has settled and papers are running."""
    return status.processing > 0 and 4 * status.settled >= status.total


def refuse_end(worker: WorkerChild) -> None:
    """Raises RuntimeError with the worker's last words once it has ended."""
    if worker.code is not None:
        raise RuntimeError(f"the worker ended with {worker.code}:\n{worker.words}")


@asynccontextmanager
async def within(seconds: float, otherwise: str) -> AsyncIterator[None]:
    """Raises RuntimeError when the block takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise RuntimeError(f"{otherwise} within {seconds:g} s") from None
