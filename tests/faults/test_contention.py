"""Connections that are terminated one by one, workers that are killed, and statements that wait for others' locks."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from fanout import BatchHandle
from fanout.store.audit import install_audit
from tests.faults.batches import assert_settled_once, assert_untouched, reach, start_worker, started
from tests.ledger import closed
from tests.support import Deployment

pytestmark = pytest.mark.chaos

ITEMS = 252
SEED = 20261129
TERMINATE_ONE = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and application_name like 'fanout %' and application_name <> 'fanout client'
order by random() limit 1
"""
# Both in one statement, and so in one snapshot.
COUNTS = """
select (select array[coalesce(sum(completed), 0), coalesce(sum(failed), 0), coalesce(sum(cancelled), 0)]::bigint[]
        from fanout.progress where batch_id = $1) as counted,
       (select array[count(*) filter (where status = 'completed'), count(*) filter (where status = 'failed'),
                     count(*) filter (where status = 'cancelled')] from fanout.results where batch_id = $1) as found
"""


async def test_progress_only_ever_grows_to_its_end(fanout: Deployment) -> None:
    await grow(fanout, seconds=5, kills=3)


async def grow(fanout: Deployment, seconds: float, kills: int) -> None:
    """Random connections are terminated, the worker is killed, items fail once: the counts are those of the rows."""
    rng = random.Random(SEED)
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "10")
    batch = await fanout.client.submit("outage.flaky", [rng.random() < 0.3 for _ in range(ITEMS)])
    async with watched(fanout, batch) as seen:
        terminating = asyncio.create_task(terminate_some(fanout, seconds))
        for number in range(kills):
            await reach(batch, (number + 1) * ITEMS // (kills + 2))
            fanout.workers[-1].kill()
            await start_worker(fanout, "--concurrency", "10")
        await terminating
        status = await closed(batch)
    assert (status.status, status.completed, status.failed) == ("completed", ITEMS, 0)
    assert seen == sorted(seen)
    assert (min(seen) >= 0, max(seen)) == (True, ITEMS)
    await assert_settled_once(fanout, batch, ITEMS)


@asynccontextmanager
async def watched(fanout: Deployment, batch: BatchHandle) -> AsyncIterator[list[int]]:
    """What the batch's progress says again and again; the counters and the rows are compared each time."""
    seen: list[int] = []
    connection = await asyncpg.connect(fanout.servers.database_url)

    async def look() -> None:
        while not seen or seen[-1] < ITEMS:
            counts = await connection.fetchrow(COUNTS, batch.batch_id)
            assert counts is not None
            assert counts["counted"] == counts["found"]
            status = await batch.progress()
            seen.append(status.completed + status.failed + status.cancelled)
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        try:
            await asyncio.wait_for(looking, 30)
        finally:
            await connection.close()


async def terminate_some(fanout: Deployment, seconds: float) -> None:
    """Every 200 ms another connection of a worker."""
    connection = await asyncpg.connect(fanout.servers.database_url)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            await connection.execute(TERMINATE_ONE)
            await asyncio.sleep(0.2)
    finally:
        await connection.close()


async def test_handlers_that_use_the_client_do_not_wait_for_each_other(fanout: Deployment) -> None:
    await contend(fanout, 8)


async def contend(fanout: Deployment, seconds: float) -> None:
    """Twenty at once share a client of two connections, while somebody holds the locks of their batch."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "20")
    batch = await fanout.client.submit("outage.embedded", [None] * 60)
    await started(fanout, 1)
    connection = await asyncpg.connect(fanout.servers.database_url)
    try:
        async with connection.transaction():
            await connection.execute("select from fanout.batches where id = $1 for update", batch.batch_id)
            await connection.execute(
                "select from fanout.results where batch_id = $1 and status = 'processing' limit 1 for update",
                batch.batch_id,
            )
            await asyncio.sleep(seconds)
    finally:
        await connection.close()
    await assert_untouched(fanout, batch)
    small = [status async for status in fanout.client.list(handler="outage.small", limit=100)]
    assert len(small) == 60
    for status in small:
        assert (await closed(await fanout.client.get(status.batch_id))).completed == 2
