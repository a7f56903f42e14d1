"""Lines to PostgreSQL that say nothing any more: nobody waits for an answer for ever, and work goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fanout import FanoutClient
from fanout.devstack import Stack
from fanout.store.audit import install_audit
from tests.faults.batches import assert_untouched, reach, start_worker, started
from tests.faults.proxy import Line
from tests.faults.servers import postgres_line, through
from tests.support import Deployment, deployment, eventually

pytestmark = pytest.mark.chaos


@asynccontextmanager
async def second_client(fanout: Deployment, line: Line) -> AsyncIterator[FanoutClient]:
    """A client that reaches PostgreSQL by the line alone."""
    servers = replace(fanout.servers, database_url=through(fanout, postgres=line)["FANOUT_DATABASE_URL"])
    async with FanoutClient.connect(fanout.settings, servers=servers) as client:
        yield client


async def test_a_lease_outlives_connections_that_went_silent(stack: Stack, template: str, tmp_path: Path) -> None:
    """The connection that renews it is replaced in time: another worker, which would take the item over, does not."""
    async with deployment(stack, template, tmp_path, heartbeat_seconds=6) as fanout, postgres_line(fanout) as line:
        await start_worker(fanout, **through(fanout, postgres=line))
        known = {worker.facts.identity for worker in await fanout.client.workers()}
        line.strand()
        end = time.monotonic() + 12
        while time.monotonic() < end:
            assert {worker.facts.identity for worker in await fanout.client.workers()} == known
            await asyncio.sleep(0.1)


async def outlive_silence(fanout: Deployment) -> None:
    """Claims, settles, the close, and a client that waits: all get an answer in the end, and nothing is repeated."""
    await install_audit(fanout.pool)
    async with postgres_line(fanout) as line, second_client(fanout, line) as client:
        await start_worker(fanout, **through(fanout, postgres=line))
        await start_worker(fanout)
        batch = await fanout.client.submit("outage.work", [4.0] * 10)
        await started(fanout, 10)
        waiting = asyncio.create_task((await client.get(batch.batch_id)).wait())
        line.strand()
        await assert_untouched(fanout, batch, 120)
        assert (await asyncio.wait_for(waiting, 60)).completed == 10


async def test_work_goes_on_where_it_was_once_the_line_passes_again(fanout: Deployment) -> None:
    await stall(fanout, 5)


async def stall(fanout: Deployment, seconds: float) -> None:
    await install_audit(fanout.pool)
    async with postgres_line(fanout) as line:
        await start_worker(fanout, "--concurrency", "10", **through(fanout, postgres=line))
        batch = await fanout.client.submit("outage.work", [0.1] * 200)
        await reach(batch, 60)
        line.stall()
        await asyncio.sleep(seconds)
        line.restore()
        await assert_untouched(fanout, batch)


async def test_a_command_gives_up_on_a_silent_server_and_names_it(fanout: Deployment) -> None:
    async with postgres_line(fanout) as line:
        cut_off = replace(fanout, environment={**fanout.environment, **through(fanout, postgres=line)})
        line.stall()
        since = time.monotonic()
        ended = await asyncio.to_thread(cut_off.run, "status", "outage.small/any")
        assert (ended.returncode, ended.stdout) == (3, "")
        assert f"PostgreSQL at postgresql://fanout:***@{line.address}/" in ended.stderr
        assert "(chosen by FANOUT_DATABASE_URL) cannot be reached" in ended.stderr
        assert time.monotonic() - since < 30


async def test_a_worker_ends_in_time_while_its_line_is_silent(fanout: Deployment) -> None:
    async with postgres_line(fanout) as line:
        worker = await start_worker(fanout, "--concurrency", "5", "--grace", "2", **through(fanout, postgres=line))
        await fanout.client.submit("outage.work", [1.0] * 5 + [60.0] * 5)
        await started(fanout, 5)
        line.stall()
        since = time.monotonic()
        assert await asyncio.to_thread(worker.stop) == 1
        assert time.monotonic() - since < 2 + 5 + 3
        assert await eventually(lambda: silent(fanout))


async def silent(fanout: Deployment) -> bool:
    return not await fanout.client.workers()
