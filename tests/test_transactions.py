"""`ctx.transaction()`: a handler's own rows and the settling of its item, both or neither."""

import asyncio
import os
import random
import signal

from fanout.client import BatchHandle
from fanout.store.audit import count_recorded_twice, count_settles, install_audit
from tests.bookings import BALANCE, CREATE, END_SESSIONS
from tests.ledger import calls, closed, events, start_worker
from tests.supervisor import supervised
from tests.support import Deployment, eventually

LEDGER = "tests.handlers.ledger"
SEED = int(os.environ.get("FANOUT_CHAOS_SEED") or 20261129)


async def prepare(fanout: Deployment) -> None:
    await fanout.pool.execute(CREATE)
    await install_audit(fanout.pool)


async def assert_balanced(fanout: Deployment, batch: BatchHandle, booked: int) -> None:
    """Every completed item is booked once, and no other."""
    row = await fanout.pool.fetchrow(BALANCE, batch.batch_id)
    assert row is not None
    assert (row["differ"], row["booked"]) == (0, booked)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_effects_and_verdict_stand_or_fall_together(fanout: Deployment) -> None:
    await prepare(fanout)
    await start_worker(fanout, handlers=LEDGER)
    fails = [None, "inside", "no complete", "unstorable", "after", "again", "other"]
    batch = await fanout.client.submit("ledger.book", [{"amount": n, "fail": word} for n, word in enumerate(fails)])
    status = await closed(batch)
    assert (status.completed, status.failed) == (6, 1)
    rows = [row async for row in batch.results()]
    assert [row.result for row in rows] == [0, 1, 2, None, 4, 5, 6]
    assert [(row.attempts, len(calls(fanout, row.seq))) for row in rows] == [
        *((0, 1), (2, 3), (2, 3), (1, 1), (0, 1), (0, 1), (0, 1))
    ]
    assert rows[3].error is not None
    assert rows[3].error["code"] == "unstorable_result"
    await assert_balanced(fanout, batch, 6)


async def test_a_transaction_that_the_handler_ends_itself_settles_nothing(fanout: Deployment) -> None:
    """By ROLLBACK, or by never leaving the block; what it commits by itself it has to answer for."""
    await prepare(fanout)
    await start_worker(fanout, handlers=LEDGER)
    batch = await fanout.client.submit("ledger.book", [{"amount": 1, "fail": "rollback"}])
    assert (await closed(batch)).completed == 1
    assert len(calls(fanout, 0)) == 3
    await assert_balanced(fanout, batch, 1)
    never = await fanout.client.submit("ledger.left", [None])
    await closed(never)
    error = (await never.item("0")).row.error
    assert error is not None
    assert error["type"] == "NotCompleted"
    await assert_balanced(fanout, never, 0)


async def test_the_transaction_of_a_worker_that_was_taken_over_is_undone(fanout: Deployment) -> None:
    await prepare(fanout)
    first = await start_worker(fanout, handlers=LEDGER)
    batch = await fanout.client.submit("ledger.book", [{"amount": 5, "seconds": 15}])

    async def began() -> bool:
        return len(calls(fanout, 0)) == 1

    await eventually(began)
    first.process.send_signal(signal.SIGSTOP)
    await start_worker(fanout, handlers=LEDGER)
    assert (await closed(batch, 90)).completed == 1
    first.process.send_signal(signal.SIGCONT)

    async def refused() -> bool:
        return "StaleClaim" in first.log.read_text() or "stale claim was refused" in first.log.read_text()

    await eventually(refused)
    await assert_balanced(fanout, batch, 1)
    assert (await batch.item("0")).row.crashes == 1


async def test_a_transaction_whose_session_is_ended_costs_no_attempt(fanout: Deployment) -> None:
    """Whether it was terminated in the block or at the commit: the item is run again, or found settled."""
    await prepare(fanout)
    await start_worker(fanout, "--concurrency", "10", handlers=LEDGER)
    batch = await fanout.client.submit("ledger.book", [{"amount": 1, "seconds": 0.05}] * 1_000)
    closing = asyncio.create_task(closed(batch, 90))
    ended = 0
    while not closing.done() and ended < 10:
        ended += await fanout.pool.fetchval(END_SESSIONS) or 0
        await asyncio.wait([closing], timeout=0.1)
    assert (await closing).completed == 1_000
    assert ended == 10
    assert await events(batch, fanout, "retrying") == []
    rows = [row async for row in batch.results()]
    assert {(row.attempts, row.crashes) for row in rows} == {(0, 0)}
    await assert_balanced(fanout, batch, 1_000)


async def test_a_cancel_leaves_no_half_of_a_transaction(fanout: Deployment) -> None:
    await prepare(fanout)
    await start_worker(fanout, "--concurrency", "20", handlers=LEDGER)
    batch = await fanout.client.submit("ledger.book", [{"amount": 1, "seconds": 0.2}] * 2_000)

    async def under_way() -> bool:
        return (await batch.progress()).completed > 50

    await eventually(under_way)
    await batch.cancel("enough")
    status = await closed(batch)
    assert status.status == "cancelled"
    assert status.completed + status.cancelled == 2_000
    await assert_balanced(fanout, batch, status.completed)


async def test_a_handler_without_a_loop_is_told_that_it_has_no_transaction(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=LEDGER)
    batch = await fanout.client.submit("ledger.thread", [1])
    await closed(batch)
    error = (await batch.item("0")).row.error
    assert error is not None
    assert error["type"] == "NoTransaction"


async def kill_over_and_over(fanout: Deployment, rng: random.Random, kills: int, items: int) -> None:
    """A supervised worker is killed at random moments while it books."""
    await prepare(fanout)
    payloads = [{"amount": 1, "seconds": rng.uniform(0, 0.05)} for _ in range(items)]
    async with supervised(fanout, "--concurrency", "20", handlers=LEDGER) as supervisor:
        batch = await fanout.client.submit("ledger.book", payloads)
        closing = asyncio.create_task(closed(batch, 600))
        while len(supervisor.deaths) < kills and not closing.done():
            await asyncio.wait([closing], timeout=rng.uniform(0.05, 1.5))
            supervisor.worker.process.kill()
        status = await closing
    assert len(supervisor.deaths) >= min(kills, 1)
    # An item that ten workers died under is given up; all others are booked once.
    assert status.completed + status.failed == items
    assert await count_settles(fanout.pool, batch.batch_id) == items
    await assert_balanced(fanout, batch, status.completed)


async def test_the_ledger_balances_after_random_kills(fanout: Deployment) -> None:
    print(f"SEED={SEED}")
    await kill_over_and_over(fanout, random.Random(SEED), kills=3, items=300)
