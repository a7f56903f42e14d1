"""`doctor`: what is wrong with a deployment, and what mends it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import timedelta

from rich.console import RenderableType
from rich.text import Text

from fanout.cli.output import printable
from fanout.cli.running import DONE, NOT_COMPLETED
from fanout.cli.session import Session
from fanout.client.doctor import Doctor
from fanout.client.findings import Finding, Severity
from fanout.devstack import running
from fanout.errors import SchemaMismatch
from fanout.servers import Servers
from fanout.settings import Settings
from fanout.store import BatchStore, check_schema, connect_pool

TEXT_CHARACTERS = 2_000
STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.ERROR: "red"}


async def doctor(session: Session) -> int:
    """Looks for what is wrong with servers, workers, schedules and batches, and changes nothing.

    Ends with 1 where a finding is a warning or worse. Each one names what mends it.
    """
    with session.servers() as servers:
        async with connect(session.settings, servers) as examiner:
            found = await examiner.examine()
    if session.output.as_json:
        session.output.emit({"findings": [asdict(finding) for finding in found]})
    else:
        session.output.show(*doctor_view(found))
    return NOT_COMPLETED if any(finding.severity is not Severity.INFO for finding in found) else DONE


@asynccontextmanager
async def connect(settings: Settings, servers: Servers) -> AsyncIterator[Doctor]:
    """A doctor on these servers, whatever their schema; raises ServerUnreachable."""
    pool = await connect_pool(servers.database_url, purpose="doctor", size=1, chosen_by=servers.database_chosen_by)
    try:
        mismatch = None
        try:
            database_id = await check_schema(pool)
        except SchemaMismatch as error:
            database_id, mismatch = None, error
        temporal = await servers.connect_temporal()
        store = BatchStore(pool, timedelta(seconds=settings.heartbeat_seconds))
        stack = running(settings)
        is_own_stack = stack is not None and stack.temporal_address == servers.temporal["target_host"]
        yield Doctor(store, temporal, settings, database_id, mismatch, is_own_stack)
    finally:
        await pool.close()


def doctor_view(found: Sequence[Finding]) -> list[RenderableType]:
    """Findings for people."""
    if not found:
        return [Text("nothing is wrong", style="green")]
    return [part for finding in found for part in _lines(finding)]


def _lines(finding: Finding) -> list[Text]:
    # Not wrapped: a command that is broken into lines cannot be copied.
    return [
        Text(f"{finding.severity}: {finding.code}", style=STYLES[finding.severity]),
        Text(f"  {printable(finding.detail, TEXT_CHARACTERS)}", no_wrap=True, overflow="ignore"),
        Text(f"  fix: {printable(finding.fix, TEXT_CHARACTERS)}", no_wrap=True, overflow="ignore"),
    ]
