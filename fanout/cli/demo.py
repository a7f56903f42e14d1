"""`demo`: a batch over real papers, its worker killed half-way, and the proof that nothing was lost or done twice."""

import time
from contextlib import ExitStack, suppress
from typing import Annotated

import typer

from fanout.cli.demo_report import Plan, Proof, kept_view, papers_view, proof_view
from fanout.cli.demo_stage import HEARTBEAT_SECONDS, Stage
from fanout.cli.migrating import apply_schema
from fanout.cli.output import Output
from fanout.cli.running import DONE, NOT_COMPLETED, run_async
from fanout.cli.session import Session, reaching
from fanout.cli.stacks import own_stack, stack_servers
from fanout.client import FanoutClient
from fanout.devstack import Stack
from fanout.errors import InvalidRequest
from fanout.servers import Servers
from fanout.settings import Settings
from fanout.store import connect_pool
from fanout.store.audit import install_audit

try:
    from examples.documents import papers
except ImportError:
    papers = None  # type: ignore[assignment]

POLL_SECONDS = 0.2


def demo(
    session: Session,
    keep: Annotated[bool, typer.Option("--keep", help="Keep stack and worker up until Ctrl-C.")] = False,
) -> int:
    """Runs a batch over real papers, kills its worker half-way (SIGKILL), starts another, and proves what came of it.

    Uses a dev stack of its own in FANOUT_HOME/demo, ignores every setting that points at a real server, and leaves
    nothing running. Ends with 0 only if all is as it should be.
    """
    session.options.refuse_servers("demo")
    if papers is None:
        raise InvalidRequest("the demo needs the repository: its papers do not come with the package")
    settings = demo_settings(session.settings)
    session.output.note("starting PostgreSQL, Temporal and a worker …")
    with own_stack(settings) as stack, ExitStack() as workers:
        servers = stack_servers(settings, stack)
        session.output.note(*servers.lines)
        plan = Plan(papers.demo_items(), papers.EXPECTED_FAILURES)
        proof = run_async(_play(session.output, settings, stack, servers, workers, plan))
        _tell(session.output, proof)
        if keep:
            _keep(session.output, stack)
    return DONE if proof.holds else NOT_COMPLETED


def demo_settings(settings: Settings) -> Settings:
    """The demo's own: of the caller's settings only the folder and the servers' programs count."""
    return Settings.from_environment({}).with_values(
        {
            "home": settings.home / "demo",
            "heartbeat_seconds": HEARTBEAT_SECONDS,
            "postgres_bin": settings.postgres_bin,
            "temporal_bin": settings.temporal_bin,
        }
    )


async def _play(
    output: Output, settings: Settings, stack: Stack, servers: Servers, workers: ExitStack, plan: Plan
) -> Proof:
    await apply_schema(servers)
    with reaching(servers):
        pool = await connect_pool(servers.database_url, purpose="demo", size=2)
        try:
            await install_audit(pool)
            async with FanoutClient.connect(settings, servers=servers) as client:
                return await Stage(output, client, stack, workers, plan).play(pool)
        finally:
            pool.terminate()


def _tell(output: Output, proof: Proof) -> None:
    views = (papers_view(proof.rows), proof_view(proof))
    if output.as_json:
        output.notes.print(*views, sep="\n")
        output.emit(proof.facts)
    else:
        output.show(*views)


def _keep(output: Output, stack: Stack) -> None:
    output.notes.print("", kept_view(stack), sep="\n")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(POLL_SECONDS)
