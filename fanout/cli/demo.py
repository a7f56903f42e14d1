"""`demo`: a batch over real papers whose worker is killed half-way, and the proof that nothing was lost or done twice."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from fanout.cli.crew import WorkerChild
from fanout.cli.demo_report import PAPERS, Proof, addresses_view, papers_view, proof_view
from fanout.cli.demo_show import Show
from fanout.cli.migrating import apply_schema
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session, reaching
from fanout.cli.stacks import own_stack, stack_servers
from fanout.cli.watch import new_failures, polls
from fanout.client import BatchHandle, FanoutClient, Item, Status
from fanout.devstack import Stack
from fanout.errors import InvalidRequest
from fanout.settings import Settings
from fanout.store import Pool, connect_pool
from fanout.store.audit import count_recorded_twice, install_audit

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


def demo(
    session: Session,
    keep: Annotated[bool, typer.Option("--keep", help="Keep stack and worker up until Ctrl-C.")] = False,
) -> int:
    """Runs a batch over real papers, kills its worker half-way with SIGKILL, starts another, and proves what came of it.

    Uses a dev stack of its own in FANOUT_HOME/demo, ignores every setting that points at a real server, and leaves
    nothing running. Ends with 0 only if all is as it should be.
    """
    session.options.refuse_servers("demo")
    if PAPERS is None:
        raise InvalidRequest("the demo needs the repository: its papers do not come with the package")
    plain = Settings.from_environment({})
    programs = {name: getattr(session.settings, name) for name in ("postgres_bin", "temporal_bin")}
    home = session.settings.home / "demo"
    settings = plain.with_values({"home": home, "heartbeat_seconds": HEARTBEAT_SECONDS, **programs})
    session.output.note("starting PostgreSQL, Temporal and a worker …")
    with own_stack(settings) as stack:
        return asyncio.run(_play(session, settings, stack, keep))


async def _play(session: Session, settings: Settings, stack: Stack, keep: bool) -> int:
    servers = stack_servers(settings, stack)
    session.output.note(*servers.lines)
    await apply_schema(servers)
    with reaching(servers), ExitStack() as workers:
        pool = await connect_pool(servers.database_url, purpose="demo", size=2)
        try:
            async with FanoutClient.connect(settings, servers=servers) as client:
                stage = Stage(session, client, stack, workers)
                await install_audit(pool)
                proof = await stage.play(pool)
                _tell(session, proof)
                code = DONE if proof.holds else NOT_COMPLETED
                if keep:
                    await _keep(session, stack)
                return code
        finally:
            pool.terminate()


class Stage:
    """The demo's batch and its workers, which all end with the block that `workers` belongs to."""

    def __init__(self, session: Session, client: FanoutClient, stack: Stack, workers: ExitStack) -> None:
        self._session = session
        self._client = client
        self._stack = stack
        self._workers = workers
        self._kill: Status | None = None
        """How far the batch was when its worker was killed."""

    async def play(self, pool: Pool) -> Proof:
        """Runs the batch to its close, with one worker killed on the way."""
        worker = await self._ready(*self._start_worker())
        items = [Item({**item.payload, "pause_seconds": PAUSE_SECONDS}, key=item.key) for item in PAPERS()]
        batch = await self._client.submit(HANDLER, items, title="the demo's papers", origin="cli")
        async with asyncio.timeout(GIVE_UP_SECONDS):
            status = await self._follow(batch, worker)
        return Proof(
            status=status,
            rows=[row async for row in batch.results()],
            recorded_twice=await count_recorded_twice(pool, batch.batch_id),
            violations=await self._client.store.read_violations(batch.batch_id),
            kill=self._kill,
        )

    async def _follow(self, batch: BatchHandle, worker: WorkerChild) -> Status:
        output = self._session.output
        with progress_view(output.notes, output.note) as view:
            async for status in polls(batch, every=POLL_SECONDS):
                view.update(status, await new_failures(self._client, batch, view))
                if self._kill is None and await self._try_to_kill(batch, worker, status):
                    view.say(KILLED.format(running=self._kill.processing))
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
        async with asyncio.timeout(START_SECONDS):
            while identity not in [row.facts.identity for row in await self._client.workers()]:
                refuse_end(worker)
                await asyncio.sleep(POLL_SECONDS)
        return worker

    async def _try_to_kill(self, batch: BatchHandle, worker: WorkerChild, seen: Status) -> bool:
        """Kills the worker if papers are running at that very moment: it stands still while they are counted."""
        if not is_ripe(seen):
            return False
        worker.send(signal.SIGSTOP)
        status = await batch.progress()
        if not is_ripe(status):
            worker.send(signal.SIGCONT)
            return False
        worker.kill()
        self._kill = status
        return True


def is_ripe(status: Status) -> bool:
    """Whether a quarter has settled and papers are running."""
    return status.processing > 0 and 4 * status.settled >= status.total


def refuse_end(worker: WorkerChild) -> None:
    """Raises RuntimeError with the worker's last words once it has ended."""
    if worker.code is not None:
        raise RuntimeError(f"the worker ended with {worker.code}:\n{worker.words}")


def _tell(session: Session, proof: Proof) -> None:
    if session.output.as_json:
        session.output.notes.print(papers_view(proof), proof_view(proof))
        session.output.emit(proof.facts)
    else:
        session.output.show(papers_view(proof), proof_view(proof))


async def _keep(session: Session, stack: Stack) -> None:
    """Holds stack and worker until Ctrl-C or SIGTERM."""
    session.output.notes.print(kept_view(stack))
    with suppress(KeyboardInterrupt):
        await asyncio.Event().wait()
