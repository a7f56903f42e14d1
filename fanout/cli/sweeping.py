"""`sweep`: a pass of the sweeper, here and now."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from fanout.cli.session import Session
from fanout.cli.views import sweep_view
from fanout.client.starting import Starter
from fanout.client.sweeping import Sweeping
from fanout.live import Notifier
from fanout.servers import Servers
from fanout.settings import Settings
from fanout.store import BatchStore, Ticks, check_schema, connect_pool

# The database's clock decides whether two passes lie far enough apart, not ours.
MARGIN_SECONDS = 0.5


async def sweep(
    session: Session,
    twice: Annotated[
        bool, typer.Option("--twice", help="A second pass after half the interval: what both agree on is healed.")
    ] = False,
) -> None:
    """Looks now at every open batch that has settled nothing since the pass before, and heals what two passes agree on.

    It needs no worker. One pass starts what was never started; a batch whose run was lost is brought on by the second.
    """
    with session.servers() as servers:
        async with connect(session.settings, servers) as sweeping:
            reports = [await sweeping.run_pass()]
            if twice:
                await asyncio.sleep(sweeping.apart_seconds + MARGIN_SECONDS)
                reports.append(await sweeping.run_pass())
    answer: dict[str, Any] = {
        "examined": reports[-1].examined,
        "healed": [line for report in reports for line in report.healed],
        "left_alone": reports[-1].left_alone,
    }
    if session.output.as_json:
        session.output.emit(answer)
    else:
        session.output.show(*sweep_view(answer))


@asynccontextmanager
async def connect(settings: Settings, servers: Servers) -> AsyncIterator[Sweeping]:
    """A sweeper on these servers; raises ServerUnreachable or SchemaMismatch."""
    stale_after = timedelta(seconds=settings.heartbeat_seconds)
    pool = await connect_pool(servers.database_url, purpose="sweep", size=1, chosen_by=servers.database_chosen_by)
    try:
        database_id = await check_schema(pool)
        temporal = await servers.connect_temporal()
        starter = Starter(temporal, settings.names, database_id, servers.temporal_chosen_by, stale_after=stale_after)
        notifier = Notifier(Ticks(pool))
        store = BatchStore(pool, stale_after, on_change=notifier.note)
        try:
            yield Sweeping(store, temporal, starter, settings)
        finally:
            await notifier.close()
    finally:
        await pool.close()
