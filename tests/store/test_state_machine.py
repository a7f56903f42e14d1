"""Any order of calls, by anybody, twice, late and with lost answers: rows and answers stay what the model says.

`FANOUT_CHAOS` in the environment makes the run much longer and random; `FANOUT_CHAOS_SEED` repeats a printed seed.
"""

import asyncio
import json
import os
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fanout.devstack import Stack
from fanout.states import CLOSED, ItemStatus
from fanout.store import BatchStore, Completion, Pool, Reopened, Verdict, WorkerFacts, WorkStore, connect_pool
from fanout.store.audit import count_recorded_twice, count_settles, install_audit
from tests.store.model import ModelBatch
from tests.store.moves import forbidden_moves, record_moves
from tests.store.support import HANDLER, LONG_GRACE, NEVER_AWAY, NO_GRACE, STALE_AFTER, WORKFLOW, add_batch, database

CHAOS = "FANOUT_CHAOS" in os.environ
EXAMPLES, STEPS = (2_000, 80) if CHAOS else (40, 40)
MOST_ROWS = 6

READ_ROWS = """
select status, claim_id, worker_id, attempts, crashes, throttles, coalesce(due_at <= clock_timestamp(), true) as due,
       result::text as result, error ->> 'type' as error
from fanout.results where batch_id = $1 order by seq
"""
READ_BATCH = """
select b.status, b.epoch, b.closed_at is not null as closed,
       array[sum(p.completed), sum(p.failed), sum(p.cancelled)]::integer[] as counters
from fanout.batches b left join fanout.progress p on p.batch_id = b.id where b.id = $1 group by b.id
"""
READ_EVENTS = """
select id, kind, coalesce(data ->> 'seq', data ->> 'epoch')::integer as number
from fanout.events where batch_id = $1 order by id
"""

# Which claims of the past, newest first, a call names for which rows; 0 is the claim that may still hold.
NAMED = st.dictionaries(st.integers(0, MOST_ROWS - 1), st.sampled_from([0, 0, 1, 1, 2]), max_size=MOST_ROWS)
SLOTS = st.sampled_from([0, 0, 15])
ERRORS = st.sampled_from(["Broken", "Flaky"])
REOPENED: st.SearchStrategy[Reopened] = st.sampled_from(["failed", "failed", "cancelled"])


@dataclass(frozen=True)
class World:
    """One database and one event loop for all runs of the machine."""

    runner: asyncio.Runner
    pool: Pool

    @property
    def batches(self) -> BatchStore:
        return BatchStore(self.pool, STALE_AFTER)

    @property
    def work(self) -> WorkStore:
        return WorkStore(self.pool, STALE_AFTER)


class StoreMachine(RuleBasedStateMachine):
    """One batch, three workers, and every claim that was ever given out, to be used again."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.run = world.runner.run
        self.pool, self.batches, self.work = world.pool, world.batches, world.work
        self.workers = [WorkerFacts(uuid4(), f"worker-{n}", {HANDLER: {}}, "test", 10) for n in range(3)]
        self.history: dict[int, list[UUID]] = {}
        self.batch_id = UUID(int=0)
        self.model = ModelBatch(0, set())

    @initialize(
        total=st.integers(3, MOST_ROWS),
        opened=st.sampled_from([True, True, True, False]),
        limit=st.sampled_from([None, None, 0, 1, 2]),
        on_budget=st.sampled_from(["pause", "fail"]),
    )
    def submit(self, total: int, opened: bool, limit: int | None, on_budget: str) -> None:
        """Every batch has a deadline that has passed, which is noticed when somebody looks."""
        self.model = ModelBatch(total, {worker.id for worker in self.workers}, limit, on_budget)
        options = {} if limit is None else {"failure_limit": limit, "on_budget": on_budget}
        self.batch_id = self.run(
            add_batch(self.batches, total, opened=opened, options=options, deadline=timedelta(microseconds=1))
        )
        for worker in self.workers:
            self.refresh(worker)
        if opened:
            self.model.open()

    @rule(workflow_id=st.sampled_from([WORKFLOW, WORKFLOW, "another"]))
    def open(self, workflow_id: str) -> None:
        self.run(self.batches.open_batch(self.batch_id, workflow_id))
        if workflow_id == WORKFLOW:
            self.model.open()

    @rule(
        worker=st.integers(0, 2),
        back=st.sampled_from([0, 0, 0, 0, 0, 1, 2, -1]),
        span=st.sampled_from([(0, MOST_ROWS), (0, MOST_ROWS), (0, 2), (1, 4), (3, 100)]),
        limit=st.sampled_from([1, 2, 500]),
        lost=st.booleans(),
    )
    def claim(self, worker: int, back: int, span: tuple[int, int], limit: int, lost: bool) -> None:
        """A claim of any worker under any epoch; where its answer is `lost` it is read back."""
        claim_id, worker_id, epoch = uuid4(), self.workers[worker].id, self.model.epoch - back
        before = {seq: (row.attempts, row.throttles) for seq, row in enumerate(self.model.rows)}
        current, taken = self.model.claim(epoch, span, limit, claim_id, worker_id)
        self.keep_lease(worker)
        claim = self.run(self.work.claim(self.batch_id, epoch, span, limit, claim_id, worker_id))
        items = self.run(self.work.read_claim(self.batch_id, span, claim_id)) if lost else claim.items
        assert claim.current is current
        assert [item.seq for item in items] == taken
        for item in items:
            assert (item.key, json.loads(item.payload)) == (f"k{item.seq}", {"n": item.seq})
            assert (item.attempts, item.throttles) == before[item.seq]
            assert (item.crashes, item.claim_id) == (self.model.rows[item.seq].crashes, claim_id)
            self.history.setdefault(item.seq, []).append(claim_id)

    def _named(self, named: dict[int, int]) -> list[tuple[int, UUID]]:
        """Claims out of the past for some rows, in the order that Hypothesis chose."""
        past = {seq: list(reversed(self.history.get(seq, []))) for seq in named}
        return [(seq, past[seq][back]) for seq, back in named.items() if back < len(past[seq])]

    @rule(named=NAMED, slot=SLOTS, twice=st.booleans())
    def complete(self, named: dict[int, int], slot: int, twice: bool) -> None:
        """`twice`: the first answer was lost, so the settler writes the group again."""
        rows = [Completion(seq, claim_id, f'"{claim_id}"') for seq, claim_id in self._named(named)]
        for _ in range(1 + twice):
            assert self.run(self.work.complete(self.batch_id, rows, slot)) == self.model.complete(rows)

    @rule(named=NAMED, slot=SLOTS, twice=st.booleans(), error=ERRORS, crashes=st.integers(0, 1))
    def fail(self, named: dict[int, int], slot: int, twice: bool, error: str, crashes: int) -> None:
        rows = [
            Verdict(seq, claim_id, {"type": error}, attempts=1, crashes=crashes) for seq, claim_id in self._named(named)
        ]
        for _ in range(1 + twice):
            assert self.run(self.work.fail(self.batch_id, rows, slot)) == self.model.fail(rows)

    @rule(
        named=NAMED,
        slot=SLOTS,
        twice=st.booleans(),
        delay=st.sampled_from([None, None, 0.0, 3_600.0]),
        kind=st.sampled_from([None, "retried", "throttled"]),
        error=st.one_of(st.none(), ERRORS),
        charges=st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)),
    )
    def release(
        self,
        named: dict[int, int],
        slot: int,
        twice: bool,
        delay: float | None,
        kind: str | None,
        error: str | None,
        charges: tuple[int, int, int],
    ) -> None:
        told = None if error is None else {"type": error}
        rows = [Verdict(seq, claim, told, *charges, delay, kind) for seq, claim in self._named(named)]
        for _ in range(1 + twice):
            assert self.run(self.work.release(self.batch_id, rows, slot)) == self.model.release(rows)

    def keep_lease(self, worker: int) -> None:
        """What a living worker does every second, however slow this machine is."""
        if self.workers[worker].id in self.model.live:
            self.refresh(self.workers[worker])

    def refresh(self, worker: WorkerFacts) -> None:
        self.run(self.work.refresh_worker(worker))
        self.run(self.pool.execute(NEVER_AWAY, worker.id))

    @rule(worker=st.integers(0, 2), fate=st.sampled_from(["silent", "gone", "alive", "alive"]))
    def lease(self, worker: int, fate: str) -> None:
        """A worker falls silent, stops, or is heard of again."""
        facts = self.workers[worker]
        match fate:
            case "alive":
                self.refresh(facts)
                self.model.live.add(facts.id)
                return
            case "gone":
                self.run(self.work.remove_worker(facts.id))
            case "silent":
                self.run(self.pool.execute("update fanout.workers set seen_at = 'yesterday' where id = $1", facts.id))
        self.model.live.discard(facts.id)

    @rule(worker=st.integers(0, 2))
    def take_over(self, worker: int) -> None:
        """Everybody else dies, and one worker claims all: the claims of the dead are stale now."""
        for other in {0, 1, 2} - {worker}:
            self.lease(other, "gone")
        self.lease(worker, "alive")
        self.claim(worker, 0, (0, MOST_ROWS), 500, False)

    @rule()
    def time_passes(self) -> None:
        """All that waits is due."""
        self.run(
            self.pool.execute(
                "update fanout.results set due_at = 'yesterday' where batch_id = $1 and status = 'pending'"
                " and due_at is not null",
                self.batch_id,
            )
        )
        for row in self.model.rows:
            row.due = True

    @rule(twice=st.booleans(), sure=st.sampled_from([True, False, False, False]))
    def cancel(self, twice: bool, sure: bool) -> None:
        """Now and then only, as nothing much happens in a batch after it."""
        for _ in range((1 + twice) * sure):
            assert self.run(self.batches.cancel_batch(self.batch_id, "test")) is self.model.cancel()

    @rule(twice=st.booleans(), sure=st.sampled_from([True, *[False] * 7]))
    def expire(self, twice: bool, sure: bool) -> None:
        for _ in range((1 + twice) * sure):
            assert self.run(self.batches.expire_batch(self.batch_id)) is self.model.expire()

    @rule(sure=st.sampled_from([True, False, False]))
    def pause(self, sure: bool) -> None:
        if sure:
            assert self.run(self.batches.pause_batch(self.batch_id)) is self.model.pause()

    @rule()
    def resume(self) -> None:
        assert self.run(self.batches.resume_batch(self.batch_id)) is self.model.resume()

    @rule(twice=st.booleans())
    def trip(self, twice: bool) -> None:
        for _ in range(1 + twice):
            self.run(self.work.trip_budget(self.batch_id))
            self.model.trip()

    @rule(back=st.sampled_from([0, 0, 0, 1, -1]), overdue=st.booleans(), twice=st.booleans())
    def close(self, back: int, overdue: bool, twice: bool) -> None:
        for _ in range(1 + twice):
            epoch = self.model.epoch - back
            grace = NO_GRACE if overdue else LONG_GRACE
            assert self.run(self.batches.close_batch(self.batch_id, epoch, grace)) is self.model.close(epoch, overdue)

    @rule(error=st.one_of(st.none(), ERRORS), status=REOPENED, twice=st.booleans())
    def reopen(self, error: str | None, status: Reopened, twice: bool) -> None:
        for _ in range(1 + twice):
            reopened = self.run(self.batches.reopen_batch(self.batch_id, error, status=status))
            assert reopened == self.model.reopen(error, ItemStatus(status))

    @rule(worker=st.integers(0, 2))
    def look(self, worker: int) -> None:
        """What an attempt and the parent workflow read agrees with the rows."""
        worker_id = self.workers[worker].id
        self.keep_lease(worker)
        remainder = self.run(self.work.read_remainder(self.batch_id, (0, MOST_ROWS), worker_id))
        rows = self.model.rows
        open_seqs = self.model.open_seqs
        assert (remainder.open, remainder.first) == (len(open_seqs), min(open_seqs, default=None))
        free = [seq for seq in open_seqs if self.model.is_claimable(rows[seq], worker_id)]
        assert remainder.claimable == len(free)
        owned = {r.claim_id for r in rows if r.status is ItemStatus.PROCESSING and r.worker_id == worker_id}
        assert set(remainder.own_claims) == owned
        assert self.run(self.work.read_currency([self.batch_id])) == {
            self.batch_id: (self.model.status, self.model.epoch)
        }
        spans = self.run(self.batches.read_open_spans(self.batch_id, self.model.total))
        assert [seq for span in spans for seq in range(*span)] == open_seqs

    @invariant()
    def rows_are_what_the_model_says(self) -> None:
        rows = self.run(self.pool.fetch(READ_ROWS, self.batch_id))
        for record, row in zip(rows, self.model.rows, strict=True):
            assert dict(record) == vars(row)

    @invariant()
    def counters_and_state_agree_with_the_rows(self) -> None:
        batch = self.run(self.pool.fetchrow(READ_BATCH, self.batch_id))
        if batch is None:
            return
        settled = (ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.CANCELLED)
        counts = [sum(row.status is status for row in self.model.rows) for status in settled]
        assert (batch["status"], batch["epoch"]) == (self.model.status, self.model.epoch)
        assert [counter or 0 for counter in batch["counters"]] == counts
        assert batch["closed"] is (self.model.status in CLOSED)
        assert not (batch["closed"] and self.model.open_seqs)

    @invariant()
    def events_have_no_gap_and_one_closing_event_an_epoch(self) -> None:
        events = self.run(self.pool.fetch(READ_EVENTS, self.batch_id))
        assert [event["id"] for event in events] == list(range(1, len(events) + 1))
        if events:
            assert [(event["kind"], event["number"]) for event in events] == self.model.events
        closed = [event["number"] for event in events if event["kind"] == "closed"]
        assert len(closed) == len(set(closed))

    @invariant()
    def only_allowed_moves_were_made(self) -> None:
        assert self.run(forbidden_moves(self.pool, self.batch_id)) == []
        assert self.run(count_recorded_twice(self.pool, self.batch_id)) == 0

    @invariant()
    def verify_finds_nothing(self) -> None:
        assert self.run(self.batches.read_violations(self.batch_id)) == []

    def teardown(self) -> None:
        """Whatever has happened, one worker and a parent that go on bring every row and the batch to an end."""
        if self.batch_id == UUID(int=0):
            return
        self.open(WORKFLOW)
        self.resume()
        self.time_passes()
        for worker in range(3):
            self.lease(worker, "gone")
        survivor = WorkerFacts(uuid4(), "survivor", {HANDLER: {}}, "test", 10)
        self.refresh(survivor)
        claim_id, epoch = uuid4(), self.model.epoch
        self.run(self.work.claim(self.batch_id, epoch, (0, MOST_ROWS), 500, claim_id, survivor.id))
        rows = [Completion(seq, claim_id, "1") for seq in range(self.model.total)]
        self.run(self.work.complete(self.batch_id, rows, 0))
        self.run(self.batches.close_batch(self.batch_id, epoch, LONG_GRACE))
        batch = self.run(self.batches.read_batch(self.batch_id))
        assert batch is not None
        assert batch.closed
        assert self.run(self.batches.read_violations(self.batch_id)) == []
        assert self.run(count_settles(self.pool, self.batch_id)) >= self.model.total


async def _prepare(stack: Stack, template: str, exits: AsyncExitStack) -> Pool:
    url = await exits.enter_async_context(database(stack, template))
    pool = await connect_pool(url, purpose="machine", size=1)
    exits.push_async_callback(pool.close)
    await install_audit(pool)
    await record_moves(pool)
    return pool


def _chosen_seed() -> int:
    return int(os.environ.get("FANOUT_CHAOS_SEED") or random.randrange(2**32))


@pytest.mark.timeout(7_200 if CHAOS else 900)
def test_no_order_of_calls_breaks_an_invariant(stack: Stack, template: str) -> None:
    chosen: dict[str, Any] = {"derandomize": not CHAOS, "phases": [Phase.generate, Phase.shrink]}
    exits = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            world = World(runner, runner.run(_prepare(stack, template, exits)))
            factory: Any = lambda: StoreMachine(world)  # noqa: E731
            if CHAOS:
                chaos_seed = _chosen_seed()
                print(f"FANOUT_CHAOS_SEED={chaos_seed}")
                factory = seed(chaos_seed)(factory)
            run_state_machine_as_test(
                factory,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    print_blob=True,
                    suppress_health_check=list(HealthCheck),
                    **chosen,
                ),
            )
        finally:
            runner.run(exits.aclose())
