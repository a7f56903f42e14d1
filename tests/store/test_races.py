"""True concurrency: connections held at exact points, and crowds that must neither deadlock nor share a row."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import asyncpg
import pytest

from fanout.errors import KeyBusy
from fanout.store import BatchStore, Claim, ClaimedItem, Submission
from fanout.store.statements import STATEMENTS
from tests.store.support import (
    HANDLER,
    LONG_GRACE,
    LONG_SILENT,
    NO_GRACE,
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

HUNT_SECONDS = 2.5
LEAST_CALLS = 100


async def test_a_close_that_waits_for_a_retry_does_not_close_over_its_pending_row(url: str) -> None:
    async with actors(url, 2) as (retrier, closer), observer(url) as retry:
        batch_id = await add_batch(retrier.batches, 2)
        claim = await retrier.claim(batch_id)
        await retrier.work.complete(batch_id, completions(claim.items[:1]), 0)
        await retrier.work.fail(batch_id, failures(claim.items[1:]), 0)
        transaction = retry.transaction()
        await transaction.start()
        assert await retry.fetchval(STATEMENTS["reopen_batch"], batch_id, "failed") == 2
        assert await retry.fetchval(STATEMENTS["reopen_rows"], batch_id, "failed", None, None, None) == 1
        async with at_the_lock(closer, closer.batches.close_batch(batch_id, 1, LONG_GRACE)) as closing:
            await transaction.commit()
        assert closing.result() is False
        assert await statuses(closer.pool, batch_id) == ["completed", "pending"]
        assert "closed" not in await kinds(closer.batches, batch_id)
        assert await closer.batches.read_violations(batch_id) == []


async def test_a_retry_that_waits_for_a_close_reopens_what_was_closed(url: str) -> None:
    async with actors(url, 1) as (retrier,), observer(url) as close:
        batch_id = await add_batch(retrier.batches, 1)
        await retrier.work.fail(batch_id, failures((await retrier.claim(batch_id)).items), 0)
        transaction = close.transaction()
        await transaction.start()
        assert await close.fetchval(STATEMENTS["close_batch"], batch_id, 1) == 1
        async with at_the_lock(retrier, retrier.batches.reopen_batch(batch_id)) as reopening:
            await transaction.commit()
        assert reopening.result() == (2, 1)
        assert await kinds(retrier.batches, batch_id) == ["submitted", "started", "failed", "closed", "reopened"]
        assert await retrier.batches.read_violations(batch_id) == []


@pytest.mark.parametrize("statement", ["cancel_batch", "reopen_batch"])
async def test_a_claim_waits_for_a_cancel_or_a_retry_and_then_takes_nothing(url: str, statement: str) -> None:
    async with actors(url, 1) as (claimer,), observer(url) as other:
        batch_id = await add_batch(claimer.batches, 3)
        transaction = other.transaction()
        await transaction.start()
        await other.fetch(STATEMENTS[statement], batch_id, "stop" if statement == "cancel_batch" else "failed")
        async with at_the_lock(claimer, claimer.claim(batch_id)) as claiming:
            await transaction.commit()
        assert claiming.result() == Claim(False, [])
        assert await statuses(claimer.pool, batch_id) == ["pending"] * 3


async def test_a_release_that_waits_for_a_cancel_cancels_its_row(url: str) -> None:
    async with actors(url, 1) as (worker,), observer(url) as cancel:
        batch_id = await add_batch(worker.batches, 1)
        claim = await worker.claim(batch_id)
        transaction = cancel.transaction()
        await transaction.start()
        await cancel.fetch(STATEMENTS["cancel_batch"], batch_id, "stop")
        async with at_the_lock(worker, worker.work.release(batch_id, failures(claim.items), 0)) as releasing:
            await transaction.commit()
        assert releasing.result() == {0}
        assert await statuses(worker.pool, batch_id) == ["cancelled"]
        assert await worker.batches.read_violations(batch_id) == []


async def test_a_claim_that_waited_longer_than_the_lease_does_not_take_live_work_for_lost(url: str) -> None:
    async with actors(url, 2) as (owner, claimer), observer(url) as holder:
        batch_id = await add_batch(owner.batches, 3)
        assert len((await owner.claim(batch_id, limit=2)).items) == 2
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("select from fanout.batches where id = $1 for update", batch_id)
        await owner.pool.execute(LONG_SILENT, owner.worker.id)
        async with at_the_lock(claimer, claimer.claim(batch_id)) as claiming:
            await owner.refresh()
            await transaction.commit()
        assert [item.seq for item in claiming.result().items] == [2]


async def test_a_claim_sees_the_lease_of_a_worker_that_came_while_it_waited(url: str) -> None:
    async with actors(url, 2) as (owner, claimer), observer(url) as holder:
        batch_id = await add_batch(owner.batches, 3)
        await owner.work.remove_worker(owner.worker.id)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("select from fanout.batches where id = $1 for update", batch_id)
        async with at_the_lock(claimer, claimer.claim(batch_id)) as claiming:
            await owner.refresh()
            # What a claim of the new worker does, by the holder of the lock: who of two waiting goes first is chance.
            await holder.fetch(
                "update fanout.results set status = 'processing', claim_id = $2, worker_id = $3, claimed_at = now()"
                " where batch_id = $1 and seq < 2",
                *(batch_id, uuid4(), owner.worker.id),
            )
            await transaction.commit()
        assert [item.seq for item in claiming.result().items] == [2]


async def test_the_close_of_a_cancel_that_waited_longer_than_the_lease_leaves_live_work_alone(url: str) -> None:
    async with actors(url, 2) as (owner, closer), observer(url) as holder:
        batch_id = await add_batch(owner.batches, 1)
        await owner.claim(batch_id)
        assert await closer.batches.cancel_batch(batch_id, None)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("select from fanout.batches where id = $1 for update", batch_id)
        await owner.pool.execute(LONG_SILENT, owner.worker.id)
        async with at_the_lock(closer, closer.batches.close_batch(batch_id, 1, LONG_GRACE)) as closing:
            await owner.refresh()
            await transaction.commit()
        assert closing.result() is False
        assert await statuses(owner.pool, batch_id) == ["processing"]


async def _lock_key(store: BatchStore, key: str, batch_id: UUID) -> UUID:
    async with store.submitting() as submission:
        return await submission.lock_key(HANDLER, key, batch_id)


@pytest.mark.parametrize("first_commits", [True, False])
async def test_the_second_submit_of_a_key_waits_for_the_first(url: str, first_commits: bool) -> None:
    first_id, second_id = uuid4(), uuid4()
    async with actors(url, 1) as (second,), observer(url) as first:
        transaction = first.transaction()
        await transaction.start()
        assert await Submission(first).lock_key(HANDLER, "one", first_id) == first_id
        async with at_the_lock(second, _lock_key(second.batches, "one", second_id)) as locking:
            await (transaction.commit() if first_commits else transaction.rollback())
        assert locking.result() == (first_id if first_commits else second_id)


async def test_a_submit_gives_up_when_another_holds_its_key_for_too_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with actors(url, 1) as (second,), observer(url) as first:
        transaction = first.transaction()
        await transaction.start()
        await Submission(first).lock_key(HANDLER, "one", uuid4())
        with monkeypatch.context() as short:
            short.setattr("fanout.store.submission.KEY_WAIT_SECONDS", 0.1)
            with pytest.raises(KeyBusy):
                await _lock_key(second.batches, "one", uuid4())
        await transaction.rollback()
        # The connection of the one that gave up is as good as new.
        assert await add_batch(second.batches, 1, key="one") == await second.batches.find_batch(HANDLER, "one")


async def test_concurrent_submits_of_one_key_make_one_batch(url: str) -> None:
    async with actors(url, 8) as crowd:
        owners = await asyncio.gather(*(_submit(actor.batches, "one") for actor in crowd))
        assert len(set(owners)) == 1
        assert await crowd[0].pool.fetchval("select count(*) from fanout.batches") == 1
        assert await crowd[0].batches.read_violations(owners[0]) == []


async def _submit(batches: BatchStore, key: str) -> UUID:
    """The batch that has the key, in the end; the loser's look comes after its wait, so the batch is there."""
    try:
        return await add_batch(batches, 5, key=key)
    except asyncpg.UniqueViolationError:
        found = await batches.find_batch(HANDLER, key)
        assert found is not None
        return found


async def test_concurrent_claimers_never_share_a_row(url: str) -> None:
    async with actors(url, 8) as crowd:
        batch_id = await add_batch(crowd[0].batches, 200)
        taken = await asyncio.gather(*(_take_all(actor, batch_id) for actor in crowd))
    seqs = Counter(item.seq for items in taken for item in items)
    assert seqs == Counter(range(200))
    assert all(item.crashes == 0 for items in taken for item in items)


async def _take_all(actor: Actor, batch_id: UUID) -> list[ClaimedItem]:
    items: list[ClaimedItem] = []
    while (await actor.work.read_remainder(batch_id, (0, 200), actor.worker.id)).claimable:
        items += (await actor.claim(batch_id, limit=7)).items
    return items


async def test_concurrent_takers_of_a_dead_workers_rows_never_share_one(url: str) -> None:
    async with actors(url, 8) as (dead, *crowd):
        batch_id = await add_batch(dead.batches, 200)
        assert len((await dead.claim(batch_id)).items) == 200
        await dead.work.remove_worker(dead.worker.id)
        taken = await asyncio.gather(*(_take_all(actor, batch_id) for actor in crowd))
        lost = [kind for kind in await kinds(dead.batches, batch_id) if kind == "lost"]
    assert Counter(item.seq for items in taken for item in items) == Counter(range(200))
    assert all(item.crashes == 1 for items in taken for item in items)
    assert len(lost) == 200


async def test_two_closers_make_one_closing_event(url: str) -> None:
    async with actors(url, 4) as crowd:
        for _ in range(10):
            batch_id = await add_batch(crowd[0].batches, 3)
            claim = await crowd[0].claim(batch_id)
            await crowd[0].work.complete(batch_id, completions(claim.items), 0)
            closed = await asyncio.gather(*(actor.batches.close_batch(batch_id, 1, LONG_GRACE) for actor in crowd))
            assert sorted(closed) == [False, False, False, True]
            assert await kinds(crowd[0].batches, batch_id) == ["submitted", "started", "closed"]


async def test_a_close_that_waits_for_another_close_does_nothing(url: str) -> None:
    async with actors(url, 1) as (second,), observer(url) as first:
        batch_id = await add_batch(second.batches, 0)
        transaction = first.transaction()
        await transaction.start()
        assert await first.fetchval(STATEMENTS["close_batch"], batch_id, 1) == 1
        async with at_the_lock(second, second.batches.close_batch(batch_id, 1, LONG_GRACE)) as closing:
            await transaction.commit()
        assert closing.result() is False
        assert await kinds(second.batches, batch_id) == ["submitted", "started", "closed"]


async def test_a_reader_sees_no_event_before_one_with_a_lower_id(url: str) -> None:
    async with actors(url, 2) as (second, reader), observer(url) as first:
        batch_id = await add_batch(reader.batches, 1)
        transaction = first.transaction()
        await transaction.start()
        await first.execute("select fanout.emit($1, $2)", batch_id, _news("early"))
        emitting = second.pool.execute("select fanout.emit($1, $2)", batch_id, _news("late"))
        async with at_the_lock(second, emitting):
            assert [event["id"] for event in await reader.batches.read_events(batch_id, 2)] == []
            await transaction.commit()
        events = await reader.batches.read_events(batch_id, 2)
        assert [(event["id"], event["kind"]) for event in events] == [(3, "early"), (4, "late")]


def _news(kind: str, count: int = 1) -> str:
    return "[" + ",".join([f'{{"kind": "{kind}", "class": "batch", "data": {{}}}}'] * count) + "]"


async def test_a_reader_with_a_cursor_skips_no_event_of_eight_emitters(url: str) -> None:
    async with actors(url, 9) as (reader, *crowd):
        batch_id = await add_batch(reader.batches, 1)
        emitting = asyncio.gather(*(_emit(actor, batch_id, number) for number, actor in enumerate(crowd)))
        seen: list[int] = []
        while not emitting.done() or await _newest(reader, batch_id) > len(seen):
            events = await reader.batches.read_events(batch_id, len(seen), limit=50)
            seen += [event["id"] for event in events]
            assert seen == list(range(1, len(seen) + 1))
        await emitting
        assert len(seen) == 2 + 8 * sum(1 + turn % 3 for turn in range(40)) - 8 * (1 + 39 % 3)


async def _emit(actor: Actor, batch_id: UUID, number: int) -> None:
    """Forty transactions, of which one is rolled back, with work before and after their events."""
    async with actor.pool.acquire() as connection:
        for turn in range(40):
            transaction = connection.transaction()
            await transaction.start()
            if (turn + number) % 2:
                await connection.fetchval("select 1")
            await connection.execute("select fanout.emit($1, $2)", batch_id, _news("test", 1 + turn % 3))
            if (turn + number) % 3:
                await connection.fetchval("select 1")
            await (transaction.rollback() if turn == 39 else transaction.commit())


async def _newest(reader: Actor, batch_id: UUID) -> int:
    return int(await reader.pool.fetchval("select max(id) from fanout.events where batch_id = $1", batch_id))


@dataclass
class Hunt:
    """Two batches that a crowd works on without any manners: everybody may settle, release or cancel everything."""

    random: random.Random
    end: float
    batches: list[UUID]
    made: list[UUID] = field(default_factory=list)
    claimed: dict[UUID, list[ClaimedItem]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    async def run(self, actor: Actor) -> None:
        while time.monotonic() < self.end or self.calls.total() <= LEAST_CALLS:
            index = self.random.randrange(2)
            call = self.random.choices(
                ("claim", "complete", "fail", "release", "cancel", "close", "reopen", "die"), (6, 4, 4, 4, 1, 2, 2, 1)
            )[0]
            self.calls[call] += 1
            await self._call(actor, call, index)

    async def _call(self, actor: Actor, call: str, index: int) -> None:
        batch_id = self.batches[index]
        slot = self.random.randrange(2)
        match call:
            case "claim":
                epoch = self.random.choice([1, 1, 2, 3])
                claim = await actor.claim(batch_id, self.random.randint(1, 60), epoch)
                self.claimed.setdefault(batch_id, []).extend(claim.items)
            case "complete":
                await actor.work.complete(batch_id, completions(self._some(batch_id)), slot)
            case "fail" | "release":
                write = actor.work.fail if call == "fail" else actor.work.release
                await write(batch_id, failures(self._some(batch_id)), slot)
            case "cancel":
                await actor.batches.cancel_batch(batch_id, "hunt")
            case "reopen":
                await actor.batches.reopen_batch(batch_id)
            case "close":
                await self._close(actor, index)
            case _:
                await actor.work.remove_worker(actor.worker.id)
                await actor.refresh()

    async def _close(self, actor: Actor, index: int) -> None:
        batch_id = self.batches[index]
        epoch = (await actor.work.read_currency([batch_id]))[batch_id][1]
        if await actor.batches.close_batch(batch_id, epoch, self.random.choice([NO_GRACE, LONG_GRACE])):
            self.batches[index] = await add_batch(actor.batches, 60)
            self.made.append(self.batches[index])

    def _some(self, batch_id: UUID) -> list[ClaimedItem]:
        """Claims of anybody, old ones and current ones, each row once, in any order."""
        newest = self.claimed.get(batch_id, [])[-120:]
        chosen = {item.seq: item for item in self.random.sample(newest, self.random.randint(0, len(newest)))}
        return list(chosen.values())


async def test_a_crowd_on_two_batches_meets_no_deadlock_and_breaks_nothing(url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    async with observer(url) as server:
        name = url.rpartition("/")[2].partition("?")[0]
        await server.execute(f"alter database \"{name}\" set deadlock_timeout = '20ms'")
    async with actors(url, 10) as crowd:
        batches = [await add_batch(crowd[0].batches, 60) for _ in range(2)]
        hunt = Hunt(random.Random(seed), time.monotonic() + HUNT_SECONDS, batches, list(batches))
        await asyncio.gather(*(hunt.run(actor) for actor in crowd))
        for batch_id in hunt.made:
            assert await crowd[0].batches.read_violations(batch_id) == []
    assert hunt.calls.total() > LEAST_CALLS
