"""Handlers that run while servers are away; each start is a line in the ledger of `tests.handlers.cases`."""

import asyncio
from datetime import timedelta
from functools import cache
from typing import Any

from temporalio.common import RetryPolicy

from fanout import Context, FanoutClient, Settings, handler
from fanout.client.client import NO_HANDLERS
from fanout.client.starting import Starter
from fanout.live import Hub
from fanout.servers import choose_servers
from fanout.store import BatchStore, Ticks, check_schema, connect_pool
from tests.handlers.cases import note

SOON = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=0.2), maximum_attempts=5)


@handler("outage.work")
async def work(payload: float, ctx: Context) -> float:
    """Works for so many seconds."""
    note(ctx)
    await asyncio.sleep(payload)
    note(ctx, "end")
    return payload


@handler("outage.flaky", retry_policy=SOON)
async def flaky(payload: bool, ctx: Context) -> int:
    """Works for 50 ms; fails once where the payload says so."""
    await asyncio.sleep(0.05)
    if payload and ctx.attempt == 1:
        raise ConnectionError("not yet")
    return ctx.attempt


@handler("outage.small")
async def small(payload: Any) -> None:
    """Does nothing."""


@handler("outage.embedded")
async def embed(payload: Any, ctx: Context) -> str:
    """Uses the embedded client that all calls share: looks at its own batch, and makes another."""
    note(ctx)
    client = await asyncio.shield(embedded())
    status = await (await client.get(ctx.batch_id)).progress()
    assert 0 <= status.completed < status.total
    # Without the small batch's end: it may need the very slot that this item has.
    batch = await client.submit("outage.small", [1, 2], key=ctx.idempotency_key)
    return str(batch.batch_id)


@cache
def embedded() -> asyncio.Task[FanoutClient]:
    """The client of this process, with two connections for any number of calls."""
    return asyncio.get_running_loop().create_task(connect())


async def connect() -> FanoutClient:
    settings = Settings.from_environment()
    servers = choose_servers(settings, None)
    pool = await connect_pool(servers.database_url, purpose="embedded", size=2)
    temporal = await servers.connect_temporal()
    store = BatchStore(pool, timedelta(seconds=settings.heartbeat_seconds))
    hub = Hub(store, Ticks(pool), servers.listen_url)
    starter = Starter(temporal, settings.names, await check_schema(pool), servers.temporal_chosen_by)
    return FanoutClient(store, hub, starter, temporal, settings, NO_HANDLERS)
