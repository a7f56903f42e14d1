"""A submit stores its batch whole or not at all."""

from uuid import UUID, uuid4

import asyncpg
import pytest

from fanout.errors import DuplicateItemKey
from fanout.states import BatchStatus
from fanout.store import BatchStore, Pool, StoredItem
from tests.store.support import HANDLER, LONG_GRACE, WORKFLOW, actors, add_batch, kinds

# Chunks of item keys, the key that is named, and its two positions.
DUPLICATES: list[tuple[list[list[str]], str, tuple[int, int]]] = [
    ([["a", "b", "a"]], "a", (0, 2)),
    ([["a"], ["b", "c", "b"]], "b", (1, 3)),
    ([["a", "b"], ["c", "b"]], "b", (1, 3)),
    ([["a", "b"], ["c"], ["d", "a"]], "a", (0, 4)),
    ([["a", "b"], ["b", "a"]], "b", (1, 2)),
    ([["é"], ["e\u0301", "é"]], "é", (0, 2)),
]
TABLES = ("batches", "keys", "items", "results", "events", "event_heads")


async def _submit(batches: BatchStore, batch_id: UUID, *chunks: list[str]) -> None:
    first = 0
    async with batches.submitting() as submission:
        await submission.lock_key(HANDLER, "one", batch_id)
        for keys in chunks:
            await submission.copy_items(batch_id, first, [StoredItem(key, "1") for key in keys])
            first += len(keys)


async def _stored(pool: Pool) -> int:
    return sum([int(await pool.fetchval(f"select count(*) from fanout.{table}")) for table in TABLES])


async def test_a_key_that_stands_twice_is_named_with_both_positions_and_nothing_is_stored(url: str) -> None:
    async with actors(url, 1) as (actor,):
        for chunks, key, positions in DUPLICATES:
            with pytest.raises(DuplicateItemKey) as caught:
                await _submit(actor.batches, uuid4(), *chunks)
            assert (caught.value.key, caught.value.positions) == (key, positions)
            assert await _stored(actor.pool) == 0
        # The key is free again.
        await add_batch(actor.batches, 2, key="one")


async def test_the_same_item_keys_may_stand_in_two_batches(url: str) -> None:
    async with actors(url, 1) as (actor,):
        for _ in range(2):
            batch_id = await add_batch(actor.batches, 3)
            assert await actor.batches.read_item_keys(batch_id, 0, 3) == ["k0", "k1", "k2"]
            assert (await actor.batches.read_item(batch_id, "k1")).row.seq == 1


async def test_a_payload_that_is_no_json_leaves_nothing_behind(url: str) -> None:
    async with actors(url, 1) as (actor,):
        for payload in ("{", "not json", '"\ud800"'):
            with pytest.raises((asyncpg.DataError, UnicodeError)):
                await _submit_payload(actor.batches, payload)
            assert await _stored(actor.pool) == 0


async def _submit_payload(batches: BatchStore, payload: str) -> None:
    batch_id = uuid4()
    async with batches.submitting() as submission:
        await submission.lock_key(HANDLER, "one", batch_id)
        await submission.copy_items(batch_id, 0, [StoredItem("a", "1"), StoredItem("b", payload)])


async def test_an_empty_batch_closes_at_once_with_the_same_event_as_any_other(url: str) -> None:
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 0, opened=False)
        assert not await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        await actor.batches.open_batch(batch_id, "another workflow")
        assert await kinds(actor.batches, batch_id) == ["submitted"]
        await actor.batches.open_batch(batch_id, WORKFLOW)
        assert await actor.batches.close_batch(batch_id, 1, LONG_GRACE)
        batch = await actor.batches.read_batch(batch_id)
        assert batch is not None
        assert (batch.status, batch.total, batch.open) == (BatchStatus.COMPLETED, 0, 0)
        assert await kinds(actor.batches, batch_id) == ["submitted", "started", "closed"]
        assert await actor.batches.read_violations(batch_id) == []
