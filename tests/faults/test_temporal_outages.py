"""Temporal goes away, for all or for one worker: what runs goes on, is started once, and the batch closes."""

import asyncio
import time
from pathlib import Path

import pytest

from fanout import ServerUnreachable
from fanout.devstack import Stack
from fanout.store.audit import install_audit
from tests.faults.batches import assert_untouched, reach, start_worker, started
from tests.faults.servers import on_own_temporal, temporal_line, through
from tests.ledger import closed
from tests.support import Deployment


async def test_a_batch_outlives_a_killed_temporal(stack: Stack, tmp_path: Path) -> None:
    await outlive_temporal(stack, tmp_path, 12)


async def outlive_temporal(stack: Stack, folder: Path, seconds: float) -> None:
    """Its items run on meanwhile; a new batch is stored, and its submitter told what happened and what to do."""
    async with on_own_temporal(stack, folder) as (fanout, temporal):
        await install_audit(fanout.pool)
        await start_worker(fanout, "--concurrency", "4")
        batch = await fanout.client.submit("outage.work", [0.3] * 60)
        await reach(batch, 18)
        await temporal.kill()
        since = time.monotonic()
        with pytest.raises(ServerUnreachable, match=r"Temporal at .* is stored as outage\.small/late") as caught:
            await fanout.client.submit("outage.small", [1, 2, 3], key="late")
        assert temporal.server.address in str(caught.value)
        await asyncio.sleep(max(0, since + seconds - time.monotonic()))
        await temporal.start()
        late = await fanout.client.submit("outage.small", [1, 2, 3], key="late")
        assert late.outcome == "joined"
        await assert_untouched(fanout, batch, 90)
        assert (await closed(late)).completed == 3


@pytest.mark.steady
async def test_a_worker_that_lost_temporal_alone_keeps_its_items(fanout: Deployment) -> None:
    await lose_temporal(fanout, 2 * fanout.settings.heartbeat_seconds)


async def lose_temporal(fanout: Deployment, seconds: float) -> None:
    """Another worker is given the range meanwhile, and starts nothing that the first one runs."""
    await install_audit(fanout.pool)
    async with temporal_line(fanout) as line:
        first = await start_worker(fanout, "--concurrency", "10", **through(fanout, temporal=line))
        batch = await fanout.client.submit("outage.work", [seconds] * 10)
        await started(fanout, 10)
        line.cut()
        await start_worker(fanout, "--concurrency", "10")
        await assert_untouched(fanout, batch, seconds + 60)
        assert first.process.poll() is None
        line.restore()
        again = await fanout.client.submit("outage.small", list(range(100)))
        assert (await closed(again)).completed == 100
