"""Budgets, deadlines, follow-ups and retries of cancelled rows: what the statements do when others are faster."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from fanout.errors import KeyHeld
from fanout.store import BatchRow, NewBatch, StoredItem, WholeBatch
from fanout.store.statements import STATEMENTS
from tests.store.support import (
    FINGERPRINT,
    HANDLER,
    LONG_GRACE,
    NO_GRACE,
    WORKFLOW,
    Actor,
    actors,
    add_batch,
    at_the_lock,
    completions,
    failures,
    kinds,
    observer,
    statuses,
)


def budget(limit: int, action: str = "pause") -> dict[str, Any]:
    return {"max_failures": limit, "failure_limit": limit, "on_budget": action}


async def fail(actor: Actor, batch_id: UUID, count: int, epoch: int = 1) -> None:
    """Claims the next rows and fails them, without a look at the budget."""
    items = (await actor.claim(batch_id, count, epoch)).items
    assert len(items) == count
    await actor.work.fail(batch_id, failures(items), 0)


async def state(actor: Actor, batch_id: UUID) -> tuple[str, str | None]:
    batch = await actor.batches.read_batch(batch_id)
    assert batch is not None
    return batch.status.value, batch.reason


async def test_a_budget_trips_once_and_stops_every_claim(url: str) -> None:
    async with actors(url, 4) as crowd:
        actor = crowd[0]
        for action, status in (("pause", "paused"), ("fail", "cancelling")):
            batch_id = await add_batch(actor.batches, 10, options=budget(2, action))
            held = (await actor.claim(batch_id, 1)).items
            await fail(actor, batch_id, 2)
            await actor.work.trip_budget(batch_id)
            assert await state(actor, batch_id) == ("processing", None)
            await fail(actor, batch_id, 1)
            await asyncio.gather(*(each.work.trip_budget(batch_id) for each in crowd))
            assert await state(actor, batch_id) == (status, "failure_budget")
            assert not (await actor.claim(batch_id)).current
            # What runs goes on, and is recorded.
            assert await actor.work.complete(batch_id, completions(held), 0) == {0}
            events = await actor.batches.read_events(batch_id, 0)
            [tripped] = [event["data"] for event in events if event["kind"] == "budget_tripped"]
            assert tripped == {"failed": 3, "limit": 2, "action": action}
            assert await actor.batches.read_violations(batch_id) == []
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        assert await state(actor, batch_id) == ("failed", "failure_budget")
        assert (await statuses(actor.pool, batch_id)).count("cancelled") == 6


async def test_a_trip_that_waits_for_a_retry_counts_what_is_left_after_it(url: str) -> None:
    """By the counters from before it would pause a batch that has no failure any more."""
    async with actors(url, 2) as (retrier, settler), observer(url) as retry:
        batch_id = await add_batch(retrier.batches, 10, options=budget(2))
        await fail(retrier, batch_id, 3)
        transaction = retry.transaction()
        await transaction.start()
        await retry.fetchval(STATEMENTS["reopen_batch"], batch_id, "failed")
        await retry.fetchval(STATEMENTS["reopen_rows"], batch_id, "failed", None, None, None)
        await retry.execute(STATEMENTS["tell_reopened"], batch_id)
        async with at_the_lock(settler, settler.work.trip_budget(batch_id)):
            await transaction.commit()
        assert await state(settler, batch_id) == ("processing", None)
        assert "budget_tripped" not in await kinds(settler.batches, batch_id)


async def test_what_a_person_has_seen_is_forgiven(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 20, options=budget(2))
        await fail(actor, batch_id, 3)
        await actor.work.trip_budget(batch_id)
        assert await actor.batches.resume_batch(batch_id)
        for count, status in ((2, "processing"), (1, "paused")):
            await fail(actor, batch_id, count)
            await actor.work.trip_budget(batch_id)
            assert (await state(actor, batch_id))[0] == status
        assert await actor.batches.reopen_batch(batch_id, item_keys=["k0", "k1"]) == (2, 2)
        assert await state(actor, batch_id) == ("paused", None)
        assert await actor.batches.resume_batch(batch_id)
        for count, status in ((2, "processing"), (1, "paused")):
            await fail(actor, batch_id, count, epoch=2)
            await actor.work.trip_budget(batch_id)
            assert (await state(actor, batch_id))[0] == status
        assert await actor.batches.read_violations(batch_id) == []


async def test_a_pause_by_the_budget_does_not_outlast_the_work(url: str) -> None:
    """One by a person does, until it is resumed."""
    async with actors(url, 1) as (actor,):
        for paused_by_person in (False, True):
            batch_id = await add_batch(actor.batches, 4, options=budget(0))
            held = (await actor.claim(batch_id, 3)).items
            await fail(actor, batch_id, 1)
            if paused_by_person:
                assert await actor.batches.pause_batch(batch_id)
            await actor.work.trip_budget(batch_id)
            assert (await state(actor, batch_id))[0] == "paused"
            await actor.work.complete(batch_id, completions(held), 0)
            assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE) is not paused_by_person


async def test_a_deadline_is_kept_by_the_database_and_only_once_it_has_passed(url: str) -> None:
    async with actors(url, 1) as (actor,):
        ahead = await add_batch(actor.batches, 2, deadline=timedelta(hours=1))
        without = await add_batch(actor.batches, 2)
        for batch_id in (ahead, without):
            assert not await actor.batches.expire_batch(batch_id)
        for opened in (False, True):
            batch_id = await add_batch(actor.batches, 3, opened=opened, deadline=timedelta(microseconds=1))
            if opened:
                await actor.claim(batch_id, 1)
            assert await actor.batches.expire_batch(batch_id)
            assert not await actor.batches.expire_batch(batch_id)
            assert (await statuses(actor.pool, batch_id)).count("cancelled") == 3 - opened
            assert not await actor.batches.cancel_batch(batch_id, "too late")
            assert await actor.batches.close_batch(batch_id, 1, NO_GRACE)
            assert await state(actor, batch_id) == ("failed", "deadline")
            assert (await kinds(actor.batches, batch_id))[-2:] == ["deadline_passed", "closed"]
            assert await actor.batches.read_violations(batch_id) == []


async def test_a_batch_that_was_cancelled_before_its_deadline_stays_cancelled(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 2, deadline=timedelta(microseconds=1))
        assert await actor.batches.cancel_batch(batch_id, "enough")
        assert not await actor.batches.expire_batch(batch_id)
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        assert await state(actor, batch_id) == ("cancelled", "enough")


def follow_up(batch: BatchRow) -> WholeBatch:
    """A batch of one item that names what it follows."""
    new = NewBatch(uuid4(), HANDLER, f"{batch.id}/{batch.epoch}/closed", WORKFLOW, None, {})
    return WholeBatch(new, (StoredItem("closed", f'"{batch.status}"'),), FINGERPRINT)


async def payloads(actor: Actor, keys: Sequence[str]) -> list[str]:
    """The payloads of the items of the batches with these keys."""
    return [
        row["payload"]
        for row in await actor.pool.fetch(
            "select i.payload from fanout.batches b join fanout.items i on i.batch_id = b.id"
            " where b.key = any($1::text[]) order by b.created_at",
            keys,
        )
    ]


async def test_many_closers_store_one_follow_up_an_epoch(url: str) -> None:
    async with actors(url, 4) as crowd:
        actor = crowd[0]
        batch_id = await add_batch(actor.batches, 1)
        keys = [f"{batch_id}/{epoch}/closed" for epoch in (1, 2)]
        await fail(actor, batch_id, 1)
        for epoch, end in ((1, "completed_with_failures"), (2, "completed")):
            for _ in range(2):
                await asyncio.gather(
                    *(each.batches.close_batch(batch_id, epoch, LONG_GRACE, follow_up) for each in crowd)
                )
            assert (await payloads(actor, keys))[epoch - 1 :] == [f'"{end}"']
            found = await actor.batches.find_batch(HANDLER, keys[epoch - 1])
            assert found is not None
            assert await actor.batches.read_violations(found) == []
            if epoch == 1:
                await actor.batches.reopen_batch(batch_id)
                items = (await actor.claim(batch_id, epoch=2)).items
                await actor.work.complete(batch_id, completions(items), 0)


async def test_a_follow_up_that_cannot_be_stored_leaves_its_batch_open(url: str) -> None:
    def broken(batch: BatchRow) -> WholeBatch:
        raise LookupError("a fault of ours")

    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 0)
        with pytest.raises(LookupError):
            await actor.batches.close_batch(batch_id, 1, LONG_GRACE, broken)
        assert (await state(actor, batch_id))[0] == "processing"
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE, follow_up)


async def test_cancelled_rows_are_reopened_when_they_are_asked_for(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 4)
        await fail(actor, batch_id, 1)
        await actor.batches.cancel_batch(batch_id, "enough")
        for status in ("failed", "cancelled"):
            assert await actor.batches.reopen_batch(batch_id, status=status) is None
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        assert await actor.batches.reopen_batch(batch_id) is None
        assert await actor.batches.reopen_batch(batch_id, "Broken", status="cancelled") is None
        assert await actor.batches.reopen_batch(batch_id, item_keys=["k3"], status="cancelled") == (2, 1)
        assert await statuses(actor.pool, batch_id) == ["failed", "cancelled", "cancelled", "pending"]
        assert (await actor.batches.read_item(batch_id, "k3")).row.error is None
        await actor.work.complete(batch_id, completions((await actor.claim(batch_id, epoch=2)).items), 0)
        assert await actor.batches.close_batch(batch_id, 2, LONG_GRACE)
        # Some of its items were never tried: it has neither completed nor failed.
        assert await state(actor, batch_id) == ("cancelled", None)
        assert await actor.batches.reopen_batch(batch_id, status="cancelled") == (3, 2)
        await actor.work.complete(batch_id, completions((await actor.claim(batch_id, epoch=3)).items), 0)
        assert await actor.batches.close_batch(batch_id, 3, LONG_GRACE)
        assert (await state(actor, batch_id))[0] == "completed_with_failures"
        assert await actor.batches.read_violations(batch_id) == []


async def test_a_retry_of_a_batch_whose_key_another_open_one_has_is_refused(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 1, key="one")
        await fail(actor, batch_id, 1)
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        await actor.pool.execute("delete from fanout.keys where batch_id = $1", batch_id)
        newer = await add_batch(actor.batches, 1, key="one")
        with pytest.raises(KeyHeld, match=str(newer)):
            await actor.batches.reopen_batch(batch_id)
        assert (await state(actor, batch_id))[0] == "completed_with_failures"
        await actor.batches.cancel_batch(newer, None)
        assert await actor.batches.close_batch(newer, 1, LONG_GRACE)
        assert await actor.batches.reopen_batch(batch_id) == (2, 1)
        assert await actor.batches.read_violations(batch_id) == []
