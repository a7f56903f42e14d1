"""Ticks: whatever changes a batch leads to one, they carry ids alone, and they are never in the way."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from fanout.live import Notifier
from fanout.store import BatchStore, NewBatch, StoredItem, SweepStore, Ticks, WorkStore, connect_pool
from fanout.store.ticks import CHANNEL
from tests.live.support import live, settle, until, worker
from tests.store.support import FINGERPRINT, HANDLER, LONG_GRACE, STALE_AFTER, actors, add_batch, completions, failures

HOSTILE = "'); select pg_notify('x', $$y$$); --\u202e\u00e9\U0001f600\"\\"


@asynccontextmanager
async def heard(url: str) -> AsyncIterator[list[dict[str, Any]]]:
    """All that is said on the channel."""
    said: list[dict[str, Any]] = []
    connection = await asyncpg.connect(url)
    try:
        await connection.add_listener(CHANNEL, lambda *found: said.append(json.loads(str(found[3]))))
        yield said
    finally:
        await connection.close()


async def test_every_change_of_a_batch_is_noted(url: str) -> None:
    noted: list[UUID] = []
    async with actors(url, 1) as (actor,):
        batches = BatchStore(actor.pool, STALE_AFTER, on_change=noted.append)
        work = WorkStore(actor.pool, STALE_AFTER, on_change=noted.append)
        sweeps = SweepStore(actor.pool, STALE_AFTER, on_change=noted.append)
        batch_id = await add_batch(actor.batches, 9, opened=False)
        await actor.refresh()
        [quiet] = await sweeps.list_quiet_batches(
            UUID(int=0), 10, await actor.pool.fetchval("select now()"), timedelta(0)
        )
        items = (await actor.claim(batch_id)).items
        claim = (batch_id, 1, (0, 9), 3, uuid4(), actor.worker.id)
        changes: list[Callable[[], Awaitable[Any]]] = [
            lambda: batches.open_batch(batch_id, "fanout/test.store/key"),
            lambda: batches.pause_batch(batch_id),
            lambda: batches.resume_batch(batch_id),
            lambda: batches.trip_budget(batch_id),
            lambda: work.claim(*claim),
            lambda: work.complete(batch_id, completions(items), slot=0),
            lambda: work.fail(batch_id, failures(items), slot=0),
            lambda: work.release(batch_id, failures(items), slot=0),
            lambda: work.open_breaker(batch_id, "X", timedelta(seconds=1), 3),
            lambda: work.close_breaker(batch_id),
            lambda: work.tell_blocked(batch_id, 0, "k0", 1.0, "w"),
            lambda: sweeps.tell_once(batch_id, "slow", "slow", {}),
            lambda: sweeps.revive_batch(quiet, {}),
            lambda: sweeps.abandon_batch(quiet, "failed", "x", {}),
            lambda: batches.reopen_batch(batch_id),
            lambda: batches.expire_batch(batch_id),
            lambda: batches.cancel_batch(batch_id, None),
            lambda: batches.close_batch(batch_id, 1, LONG_GRACE),
        ]
        for number, change in enumerate(changes, 1):
            await change()
            assert noted == [batch_id] * number


async def test_ticks_carry_ids_alone_and_at_most_four_a_second(url: str) -> None:
    async with live(url) as found, worker(url) as actor, heard(url) as said:
        batch_id = uuid4()
        async with found.batches.submitting() as submission:
            await submission.lock_key(HANDLER, HOSTILE, batch_id)
            await submission.copy_items(batch_id, 0, [StoredItem(f"{HOSTILE}{seq}", "{}") for seq in range(300)])
            new = NewBatch(batch_id, HANDLER, HOSTILE, HOSTILE, HOSTILE, {})
            await submission.insert_batch(new, 300, FINGERPRINT)
        began = asyncio.get_running_loop().time()
        await found.batches.open_batch(batch_id, HOSTILE)
        for _ in range(100):
            await settle(found, actor, batch_id, 3, failing=1)
        await found.batches.cancel_batch(batch_id, HOSTILE)
        await found.batches.close_batch(batch_id, 1, LONG_GRACE)
        newest = (await found.batches.read_events(batch_id, 0))[-1]["id"]
        await until(lambda: bool(said) and said[-1]["version"] == newest)
        seconds = asyncio.get_running_loop().time() - began
    assert [tick for tick in said if tick.keys() != {"batch", "version"} or tick["batch"] != str(batch_id)] == []
    assert len(said) <= 2 + 4 * seconds


async def test_an_invalid_tick_is_nobodys_harm(url: str) -> None:
    async with live(url) as found, worker(url) as actor:
        batch_id = await add_batch(found.batches, 1)
        async with found.reading(batch_id) as notes:
            await found.heard()
            for text in ("", "x", "[]", "null", "7", '{"batch": 7}', '{"batch": "x"}', '{"probe": []}', "{}"):
                await found.pool.execute("select pg_notify($1, $2)", CHANNEL, text)
            await settle(found, actor, batch_id, 1)
            await until(lambda: notes.settled()[-1] == 1)
            assert len(await found.listeners()) == 1


async def test_without_a_database_the_work_goes_on_and_it_is_said_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool = await connect_pool(url, purpose="ticks", size=1)
    await pool.close()
    notifier = Notifier(Ticks(pool))
    with caplog.at_level(logging.WARNING, "fanout.live"):
        for _ in range(3):
            notifier.note(uuid4())
            await until(lambda: not notifier.waiting)
        await notifier.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
