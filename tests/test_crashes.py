"""Workers that die: real processes, real SIGKILL, and an audit of every settle."""

import asyncio
import random
import signal
from uuid import UUID

import pytest

from fanout.store.audit import count_recorded_twice, count_settles, install_audit
from tests.support import Deployment, eventually

SEED = 20261129


async def settled(fanout: Deployment, batch_id: UUID) -> int:
    batch = await fanout.client.store.read_batch(batch_id)
    assert batch is not None
    return batch.total - batch.open


@pytest.mark.parametrize("number", range(3))
async def test_a_batch_closes_by_itself_after_its_only_worker_was_killed(fanout: Deployment, number: int) -> None:
    await kill_at_random(fanout, random.Random(SEED + number))


async def kill_at_random(fanout: Deployment, rng: random.Random) -> None:
    await install_audit(fanout.pool)
    worker = await fanout.start_worker("--concurrency", "20")
    batch = await fanout.client.submit("test.sleep", [{"seconds": rng.uniform(0, 0.05)} for _ in range(300)])
    moment = rng.randrange(300)
    await eventually(lambda: reached(fanout, batch.batch_id, moment))
    worker.kill()
    await fanout.start_worker("--concurrency", "20")
    status = await asyncio.wait_for(batch.wait(), 60)
    assert (status.status, status.completed) == ("completed", 300)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await count_settles(fanout.pool, batch.batch_id) == 300
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def reached(fanout: Deployment, batch_id: UUID, number: int) -> bool:
    return await settled(fanout, batch_id) >= number


async def test_live_work_is_not_taken_over_however_long_it_runs(fanout: Deployment) -> None:
    """An item that runs four times as long as the lease starts once."""
    await fanout.start_worker()
    await fanout.start_worker()
    seconds = 4 * fanout.settings.heartbeat_seconds
    batch = await fanout.client.submit("test.sleep", [{"seconds": seconds}])
    await asyncio.wait_for(batch.wait(), seconds + 60)
    row = (await batch.item("0")).row
    assert (row.status, row.attempts, row.crashes) == ("completed", 0, 0)


@pytest.mark.parametrize("ending", ["success", "permanent", "transient", "slow"])
async def test_a_frozen_worker_that_wakes_up_records_nothing(fanout: Deployment, ending: str) -> None:
    """The late end of a stopped worker is refused, whatever it is."""
    await freeze_and_wake(fanout, ending)


async def freeze_and_wake(fanout: Deployment, ending: str) -> None:
    frozen = {"handlers": "tests.handlers.frozen", "FANOUT_TEST_LEDGER": str(fanout.folder)}
    first = await fanout.start_worker(**frozen, FANOUT_TEST_ENDING=ending)
    batch = await fanout.client.submit("test.frozen", [None])
    await eventually(lambda: processing(fanout, batch.batch_id))
    first.process.send_signal(signal.SIGSTOP)
    await fanout.start_worker(**frozen, FANOUT_TEST_ENDING="B")
    status = await asyncio.wait_for(batch.wait(), 120)
    before = await fanout.client.store.read_events(batch.batch_id, 0)
    (fanout.folder / "go").touch()
    first.process.send_signal(signal.SIGCONT)
    await eventually(lambda: refused(first.log.read_text()) if ending != "slow" else woke(fanout))
    row = (await batch.item("0")).row
    assert (status.status, row.result, row.crashes, row.attempts) == ("completed", "B", 1, 0)
    assert await fanout.client.store.read_events(batch.batch_id, 0) == before
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def processing(fanout: Deployment, batch_id: UUID) -> bool:
    return await fanout.client.store.count_processing(batch_id) > 0


async def refused(log: str) -> bool:
    return "a stale claim was refused" in log


async def woke(fanout: Deployment) -> bool:
    return len(await fanout.client.workers()) == 2
