"""Whole batches through real servers and a real worker process."""

import asyncio
import signal

import pytest

from fanout.client import BatchHandle
from fanout.client.submitting import SubmitOptions, store_batch
from tests.support import Deployment, eventually


@pytest.mark.parametrize("total", [0, 1, 2, 1_000, 1_001, 5_001])
async def test_a_batch_of_any_size_closes_right(fanout: Deployment, total: int) -> None:
    await fanout.start_worker()
    batch = await fanout.client.submit("test.noop", range(total))
    status = await batch.wait()
    assert (status.status, status.total, status.completed) == ("completed", total, total)
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_long_history_is_continued_and_nothing_is_lost(fanout: Deployment) -> None:
    """One activity an item fills a history quickly: the workflow drains its window and continues as new."""
    await fanout.start_worker()
    batch = await fanout.client.submit("test.noop", range(1_450), range_size=1)
    status = await asyncio.wait_for(batch.wait(), 120)
    assert (status.status, status.completed) == ("completed", 1_450)

    async def continued() -> list[int]:
        runs = fanout.temporal.list_workflows(f"WorkflowId = '{status.workflow_id}'")
        lengths = [run.history_length or 0 async for run in runs]
        return lengths if len(lengths) > 1 else []

    assert max(await eventually(continued)) < 20_000


async def test_the_same_submit_heals_a_crash_between_commit_and_start(fanout: Deployment) -> None:
    await fanout.start_worker()
    options = SubmitOptions("test.noop", "crashed")
    names = fanout.settings.names
    batch_id, _ = await store_batch(fanout.client.store, names, options, range(5), 1_000)
    batch = await fanout.client.submit("test.noop", range(5), key="crashed")
    assert (batch.batch_id, batch.outcome) == (batch_id, "joined")
    assert (await batch.wait()).completed == 5


async def test_a_drained_worker_gives_back_what_it_cannot_finish(fanout: Deployment) -> None:
    """A deploy costs no attempt and no error, and the next worker goes on at once."""
    first = await fanout.start_worker("--grace", "1", "--concurrency", "4")
    batch = await fanout.client.submit("test.sleep", [{"seconds": 30.0}] * 10)
    await eventually(lambda: running(fanout, batch))
    assert first.stop() == 0
    assert (await fanout.statuses(batch.batch_id)).keys() == {"pending"}
    rows = [row async for row in batch.results()]
    assert {(row.attempts, row.crashes) for row in rows} == {(0, 0)}


async def running(fanout: Deployment, batch: BatchHandle) -> bool:
    return (await batch.progress()).processing == 4


async def test_running_items_finish_within_the_grace_time(fanout: Deployment) -> None:
    held = {"handlers": "tests.handlers.faulty", "FANOUT_TEST_LEDGER": str(fanout.folder)}
    first = await fanout.start_worker("--grace", "60", "--concurrency", "4", **held)
    batch = await fanout.client.submit("fault.mixed", ["held"] * 4)
    await eventually(lambda: running(fanout, batch))
    first.process.send_signal(signal.SIGTERM)

    async def draining() -> bool:
        return "draining" in first.log.read_text()

    await eventually(draining)
    (fanout.folder / "go").touch()
    assert await asyncio.to_thread(first.process.wait, 90) == 0
    assert await fanout.statuses(batch.batch_id) == {"completed": 4}
    await fanout.start_worker(**held)
    assert (await batch.wait()).status == "completed"


async def test_items_that_begin_while_the_states_of_batches_are_read_run_once(fanout: Deployment) -> None:
    """Their batch was not asked about, which is no sign of its end."""
    await fanout.start_worker(handlers="tests.handlers.late_watch", FANOUT_TEST_LEDGER=str(fanout.folder))
    long = await fanout.client.submit("late.work", [8.0])
    ledger = fanout.folder / f"{long.batch_id}-0"
    await eventually(lambda: asyncio.to_thread(ledger.exists))
    for _ in range(4):
        batch = await fanout.client.submit("late.work", [1.2] * 3)
        assert (await asyncio.wait_for(batch.wait(), 60)).completed == 3
        starts = [(fanout.folder / f"{batch.batch_id}-{seq}").read_text().count("\n") for seq in range(3)]
        assert starts == [1, 1, 1]


async def test_a_result_that_postgresql_refuses_fails_its_item_alone(fanout: Deployment) -> None:
    await fanout.pool.execute(
        """create function refuse() returns trigger language plpgsql as $$ begin
             if new.result = '"cursed"' then raise check_violation using message = 'refused'; end if;
             return new;
           end $$;
           create trigger refuse before update on fanout.results for each row execute function refuse();"""
    )
    await fanout.start_worker()
    batch = await fanout.client.submit("test.echo", ["fine", "cursed", *["fine"] * 50])
    status = await asyncio.wait_for(batch.wait(), 30)
    assert (status.completed, status.failed) == (51, 1)
    row = (await batch.item("1")).row
    assert row.error is not None
    assert (row.error["code"], row.error["type"], row.attempts) == ("unstorable_result", "Unstorable", 1)
