"""What a stale attempt finds is not recorded, and a lost answer is found again: each statement by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from fanout.states import ItemStatus
from fanout.store import ClaimedItem, SweepStore
from tests.store.support import (
    HANDLER,
    LONG_GRACE,
    NO_GRACE,
    STALE_AFTER,
    Actor,
    actors,
    add_batch,
    completions,
    failures,
    kinds,
    observer,
    statuses,
)

Settle = Callable[[Actor, UUID, Sequence[ClaimedItem]], Awaitable[set[int]]]
SETTLES: dict[str, Settle] = {
    "complete": lambda actor, batch_id, items: actor.work.complete(batch_id, completions(items), 0),
    "fail": lambda actor, batch_id, items: actor.work.fail(batch_id, failures(items), 0),
    "release": lambda actor, batch_id, items: actor.work.release(batch_id, failures(items), 0),
}
OUTCOMES = {"complete": ItemStatus.COMPLETED, "fail": ItemStatus.FAILED, "release": ItemStatus.PENDING}


@pytest.mark.parametrize("call", SETTLES)
async def test_nothing_that_a_stale_claim_brings_is_recorded(url: str, call: str) -> None:
    async with actors(url, 2) as (stale, owner):
        batch_id = await add_batch(owner.batches, 3)
        old = (await stale.claim(batch_id)).items
        await stale.work.remove_worker(stale.worker.id)
        new = (await owner.claim(batch_id, limit=2)).items
        assert [item.seq for item in new] == [0, 1]
        # Of a mixed group the row that is still held is recorded, and no other.
        assert await SETTLES[call](stale, batch_id, old) == {2}
        assert await statuses(owner.pool, batch_id) == ["processing", "processing", OUTCOMES[call]]
        assert await SETTLES[call](owner, batch_id, new) == {0, 1}
        assert await statuses(owner.pool, batch_id) == [OUTCOMES[call]] * 3
        assert await SETTLES[call](stale, batch_id, old[:2]) == set()
        assert await owner.batches.read_violations(batch_id) == []


async def test_a_worker_that_was_away_takes_nobody_for_dead_before_others_could_be_back(url: str) -> None:
    """After an outage all leases are stale: neither before its first renewal nor for three seconds after it."""
    async with actors(url, 2) as (other, first):
        batch_id = await add_batch(other.batches, 3)
        await other.claim(batch_id, limit=2)
        await other.pool.execute("update fanout.workers set seen_at = clock_timestamp() - interval '1 hour'")

        async def take(span: tuple[int, int]) -> list[int]:
            claim = await first.work.claim(batch_id, 1, span, 500, uuid4(), first.worker.id)
            remainder = await first.work.read_remainder(batch_id, span, first.worker.id)
            assert remainder.claimable == 0
            return [item.seq for item in claim.items]

        assert await take((0, 2)) == []
        await first.work.refresh_worker(first.worker)
        # It counts from now; as if no time passed from here on.
        renewed = "update fanout.workers set fresh_since = fresh_since + interval '1 hour' where id = $1"
        await first.pool.execute(renewed, first.worker.id)
        assert await take((0, 3)) == [2]
        await first.refresh()
        assert await take((0, 3)) == [0, 1]


@pytest.mark.parametrize("call", ["complete", "fail"])
async def test_a_settle_whose_answer_was_lost_recognises_its_own_rows(url: str, call: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 3)
        items = (await actor.claim(batch_id)).items
        for _ in range(3):
            assert await SETTLES[call](actor, batch_id, items) == {0, 1, 2}
        told = ["failed"] * 3 if call == "fail" else []
        assert await kinds(actor.batches, batch_id) == ["submitted", "started", *told]
        assert await actor.batches.read_violations(batch_id) == []
        batch = await actor.batches.read_batch(batch_id)
        assert batch is not None
        assert (batch.completed, batch.failed) == ((3, 0) if call == "complete" else (0, 3))


@pytest.mark.parametrize("call", SETTLES)
async def test_a_claim_from_before_a_retry_settles_nothing_after_it(url: str, call: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 1)
        old = (await actor.claim(batch_id)).items
        await actor.work.fail(batch_id, failures(old), 0)
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        assert await actor.batches.reopen_batch(batch_id) == (2, 1)
        assert await SETTLES[call](actor, batch_id, old) == set()
        assert (await actor.claim(batch_id, epoch=1)).current is False
        new = (await actor.claim(batch_id, epoch=2)).items
        assert await SETTLES[call](actor, batch_id, old) == set()
        assert await SETTLES[call](actor, batch_id, new) == {0}


@pytest.mark.parametrize("call", SETTLES)
async def test_a_row_that_a_cancel_settled_is_not_told_to_be_recorded(url: str, call: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 1)
        items = (await actor.claim(batch_id)).items
        assert await actor.batches.cancel_batch(batch_id, None)
        assert await statuses(actor.pool, batch_id) == ["processing"]
        assert await actor.batches.close_batch(batch_id, 1, NO_GRACE)
        assert await SETTLES[call](actor, batch_id, items) == set()
        assert await statuses(actor.pool, batch_id) == ["cancelled"]
        assert await actor.batches.read_violations(batch_id) == []


async def test_nothing_follows_the_close_in_a_batchs_events(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 0)
        sweeps = SweepStore(actor.pool, STALE_AFTER)
        [quiet] = await sweeps.list_quiet_batches(
            UUID(int=0), 1, await actor.pool.fetchval("select clock_timestamp()"), timedelta(0)
        )
        await sweeps.note_verdict(quiet, "leave", None)
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        await actor.work.tell_blocked(batch_id, 0, "k0", 3.0, "late")
        assert not await sweeps.tell_once(batch_id, "slow", "slow", {})
        assert await kinds(actor.batches, batch_id) == ["submitted", "started", "closed"]


async def test_what_runs_of_a_big_batch_is_what_live_workers_tell(url: str) -> None:
    """Its rows are too many to be counted by whoever looks; those of a small one are counted."""
    async with actors(url, 1) as (actor,):
        small = await add_batch(actor.batches, 10)
        await actor.claim(small, limit=3)
        assert await actor.batches.count_processing(small) == 3
        big = await add_batch(actor.batches, 10)
        await actor.pool.execute("update fanout.batches set total = 20001 where id = $1", big)
        await actor.claim(big, limit=3)
        assert await actor.batches.count_processing(big) == 0
        told = {HANDLER: {"items": 6, "oldest_seconds": 0.1, "batches": {str(big): 3, str(small): 3}}}
        await actor.work.refresh_worker(actor.worker, told)
        assert await actor.batches.count_processing(big) == 3


async def test_a_retry_of_a_batch_that_is_being_cancelled_touches_no_row(url: str) -> None:
    """It has not the lock of the batch, which whoever changes rows takes first: it would wait for a row here."""
    async with actors(url, 1) as (actor,), observer(url) as holder:
        batch_id = await add_batch(actor.batches, 2)
        claimed = (await actor.claim(batch_id)).items
        await actor.work.fail(batch_id, failures(claimed[:1]), 0)
        await actor.batches.cancel_batch(batch_id, "enough")
        async with holder.transaction(), asyncio.timeout(5):
            await holder.execute("select from fanout.results where batch_id = $1 for update", batch_id)
            assert await actor.batches.reopen_batch(batch_id) is None
