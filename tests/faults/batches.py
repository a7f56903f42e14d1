"""What the outage tests share: workers, a batch that is watched, and what has to be true of it in the end."""

import time
from contextlib import suppress
from functools import partial

from fanout import BatchHandle, Status
from fanout.store import OUTAGE, BatchRow
from fanout.store.audit import count_recorded_twice, count_settles
from tests.ledger import calls, closed
from tests.support import Deployment, WorkerProcess, eventually

RECOVERY_SECONDS = 10.0


async def start_worker(fanout: Deployment, *options: str, **settings: str) -> WorkerProcess:
    """A worker with the handlers of the outage tests and their ledger."""
    return await fanout.start_worker(
        *options, handlers="tests.handlers.outages", FANOUT_TEST_LEDGER=str(fanout.folder), **settings
    )


async def reach(batch: BatchHandle, settled: int, seconds: float = 60) -> None:
    """Waits until so many items are settled."""

    async def reached() -> bool:
        row = await _read(batch)
        return row is not None and row.total - row.open >= settled

    await eventually(reached, seconds)


async def _read(batch: BatchHandle) -> BatchRow | None:
    # The connection that asks may be one of those that an outage ended.
    with suppress(*OUTAGE):
        return await batch.read()
    return None


async def recover(batch: BatchHandle) -> float:
    """Waits until another item is settled, which must be soon; answers after how many seconds."""
    since = time.monotonic()
    row = await eventually(partial(_read, batch))
    assert row is not None
    # Every item may have been settled between two moments of the outage, and the batch not be closed yet.
    if row.open:
        await reach(batch, row.total - row.open + 1, RECOVERY_SECONDS)
    return time.monotonic() - since


async def started(fanout: Deployment, items: int) -> None:
    """Waits until the handlers of so many items have started."""

    async def all_started() -> bool:
        return all(calls(fanout, seq) for seq in range(items))

    await eventually(all_started)


async def assert_untouched(fanout: Deployment, batch: BatchHandle, seconds: float = 60) -> Status:
    """Every item succeeded, was started once, settled once, and is charged with nothing."""
    status = await closed(batch, seconds)
    assert (status.status, status.completed, status.failed) == ("completed", status.total, 0)
    charged = [row.item_key async for row in batch.results() if row.attempts or row.crashes]
    assert charged == []
    assert {seq: len(calls(fanout, seq)) for seq in range(status.total)} == dict.fromkeys(range(status.total), 1)
    await assert_settled_once(fanout, batch, status.total)
    return status


async def assert_settled_once(fanout: Deployment, batch: BatchHandle, total: int) -> None:
    """By the audit of every settle, and by all the invariants."""
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await count_settles(fanout.pool, batch.batch_id) == total
    assert await fanout.client.store.read_violations(batch.batch_id) == []
