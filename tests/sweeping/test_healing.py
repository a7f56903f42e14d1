"""The sweeper at work by itself, in real workers: what is lost is brought on, and what is healthy stays untouched."""

import asyncio
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest

from fanout import BatchHandle
from fanout.contracts import SweepOutcome, SweepStart, SweepTickWorkflow
from fanout.devstack import Stack
from fanout.devstack.temporal import Temporal
from fanout.store import SweepStore, check_schema
from fanout.store.audit import count_recorded_twice, install_audit
from tests.faults.servers import OwnServer, on_own_temporal
from tests.ledger import executions
from tests.support import Deployment, eventually
from tests.sweeping.support import (
    SWEPT,
    UNSWEPT,
    closed,
    delete_run,
    passes_finished,
    run_status,
    start_worker,
    terminate,
    told,
)

QUICK = {"FANOUT_SWEEP_EVERY_SECONDS": "1", "FANOUT_STALL_AFTER_SECONDS": "1"}


def starts(fanout: Deployment, batch: BatchHandle, seq: int) -> list[float]:
    file = fanout.folder / f"{batch.batch_id}-{seq}"
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


async def settled(batch: BatchHandle, number: int) -> bool:
    return (await batch.progress()).settled >= number


@pytest.mark.chaos
async def test_healthy_batches_are_never_touched_however_long_they_run(fanout: Deployment) -> None:
    """One goes on for thirty times as long as a standstill may last, one waits, and one has a single long item."""
    await start_worker(fanout, "--concurrency", "4", handlers="tests.handlers.swept", **QUICK)
    steady = await fanout.client.submit("swept.work", [1.0] * 60, key="steady")
    waiting = await fanout.client.submit("swept.later", [20.0], key="waiting")
    long = await fanout.client.submit("swept.work", [25.0], key="long")
    for batch, total in ((steady, 60), (waiting, 1), (long, 1)):
        status = await closed(batch, 150)
        assert (status.status, status.epoch) == ("completed", 1)
        assert await told(fanout, batch, "swept", "stalled") == []
        assert len(await executions(fanout, status.workflow_id)) == 1
        expected = 2 if batch is waiting else 1
        assert [len(starts(fanout, batch, seq)) for seq in range(total)] == [expected] * total
    first, second = starts(fanout, waiting, 0)
    assert second - first >= 20
    assert len(await told(fanout, long, "slow")) == 1
    assert await told(fanout, steady, "slow") == []
    assert await fanout.pool.fetchval("select failed from fanout.last_sweep") == 0


NO_RENEWAL = """create function hold_lease() returns trigger language plpgsql as
$$ begin new.seen_at := old.seen_at; return new; end $$;
create trigger hold_lease before update of seen_at on fanout.workers for each row execute function hold_lease()"""


@pytest.mark.chaos
async def test_items_that_end_just_as_their_lease_does_are_settled_once(fanout: Deployment) -> None:
    """Leases are not renewed, and passes come as often as they may: neither they nor a takeover undo a success."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "250", handlers="tests.handlers.swept", FANOUT_SWEEP_EVERY_SECONDS="1")
    await fanout.pool.execute(NO_RENEWAL)
    lease = fanout.settings.heartbeat_seconds
    batch = await fanout.client.submit("swept.work", [lease - 0.05 + number / 5_000 for number in range(500)])
    status = await closed(batch, 200)
    assert (status.status, status.completed) == ("completed", 500)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_terminated_batch_closes_with_the_operators_reason(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "2", handlers="tests.handlers.swept")
    batch = await fanout.client.submit("swept.work", [0.2] * 400)
    await eventually(lambda: settled(batch, 10))
    await terminate(fanout, batch, "wrong papers")
    status = await closed(batch)
    assert (status.status, status.reason, status.settled, status.epoch) == ("cancelled", "wrong papers", 400, 1)
    assert await run_status(fanout, batch) == "CANCELED"
    [event] = await told(fanout, batch, "swept")
    assert (event["action"], event["reason"]) == ("cancelled", "wrong papers")
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_client_killed_between_commit_and_start_leaves_a_batch_that_starts(fanout: Deployment) -> None:
    await start_worker(fanout)
    items = fanout.folder / "items.jsonl"
    items.write_text("1\n2\n3\n")
    fanout.environment["FANOUT_FAULT_POINTS"] = "submit.committed=kill"
    killed = await asyncio.to_thread(fanout.run, "submit", "case.type", "--items", str(items), "--key", "orphan")
    assert killed.returncode == -signal.SIGKILL
    batch = await fanout.client.get("case.type/orphan")
    assert (await batch.progress()).status == "pending"
    status = await closed(batch)
    assert (status.status, status.completed, status.epoch) == ("completed", 3, 1)
    assert [event["action"] for event in await told(fanout, batch, "swept")] == ["started"]


async def wipe(fanout: Deployment, temporal: OwnServer[Temporal], home: Path) -> None:
    """An empty Temporal on the same port, with a namespace of the same name."""
    await temporal.kill()
    for suffix in ("", "-wal", "-shm"):
        (home / f"temporal.db{suffix}").unlink(missing_ok=True)
    await temporal.start()
    await fanout.temporal.workflow_service.register_namespace(
        RegisterNamespaceRequest(
            namespace=fanout.temporal.namespace, workflow_execution_retention_period=Duration(seconds=86_400)
        )
    )


async def test_a_temporal_that_was_wiped_gets_its_runs_and_its_schedule_back(stack: Stack, tmp_path: Path) -> None:
    async with on_own_temporal(stack, tmp_path) as (fanout, temporal):
        await install_audit(fanout.pool)
        worker = await start_worker(fanout, "--concurrency", "2", handlers="tests.handlers.swept")
        batch = await fanout.client.submit("swept.work", [0.2] * 120)
        await eventually(lambda: settled(batch, 10))
        await wipe(fanout, temporal, tmp_path / "own")
        status = await closed(batch)
        assert (status.status, status.completed, status.epoch) == ("completed", 120, 2)
        assert [event["action"] for event in await told(fanout, batch, "swept")] == ["revived"]
        assert [len(starts(fanout, batch, seq)) for seq in range(120)] == [1] * 120
        assert worker.process.poll() is None
        assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
        assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_the_sweeper_runs_once_at_a_time_whoever_starts_it(fanout: Deployment) -> None:
    """Ticks that come while it runs start nothing, and say so."""
    await start_worker(fanout, **UNSWEPT)
    start = SweepStart(database_id=await check_schema(fanout.pool), deployment="fanout", limit_seconds=30)
    async with fanout.pool.transaction() as connection:
        await connection.execute("lock table fanout.sweeps in access exclusive mode")
        ticks = await asyncio.gather(
            *(
                fanout.temporal.start_workflow(
                    SweepTickWorkflow.run, start, id=f"tick-{number}", task_queue=fanout.settings.names.task_queue
                )
                for number in range(5)
            )
        )
        answers = await asyncio.gather(*(tick.result() for tick in ticks))
    assert sorted(answers) == [False] * 4 + [True]
    outcome = await fanout.temporal.get_workflow_handle("fanout-sweeper", result_type=SweepOutcome).result()
    assert outcome == SweepOutcome(examined=0, healed=0, left_alone=0)
    assert len(await executions(fanout, "fanout-sweeper")) == 1


@pytest.mark.chaos
async def test_a_pass_that_hangs_ends_in_time_and_a_later_one_runs_by_itself(fanout: Deployment) -> None:
    await start_worker(fanout)
    await passes_finished(fanout, 1)

    async def failed() -> bool:
        query = 'WorkflowId = "fanout-sweeper" and ExecutionStatus = "Failed"'
        return [run async for run in fanout.temporal.list_workflows(query)] != []

    sweeps = SweepStore(fanout.pool, timedelta(seconds=3))
    async with fanout.pool.transaction() as connection:
        await connection.execute("lock table fanout.sweeps in access exclusive mode")
        await eventually(failed, 120)
        last = await sweeps.read_last_sweep()
        assert last is not None
        assert last.age_seconds > 10
    await passes_finished(fanout, 2)


async def test_two_workers_sweepers_bring_on_what_one_worker_left(fanout: Deployment) -> None:
    """Also when a tick and the command line make passes at the same time."""
    fanout.environment.update(SWEPT)
    for _ in range(2):
        await start_worker(fanout, "--concurrency", "2", handlers="tests.handlers.swept")
    batches = [await fanout.client.submit("swept.work", [0.3] * 30) for _ in range(3)]
    for batch in batches:
        await eventually(partial(settled, batch, 3))
        await delete_run(fanout, batch)
    done = await asyncio.gather(*(asyncio.to_thread(fanout.run, "sweep", "--twice") for _ in range(2)))
    assert [each.returncode for each in done] == [0, 0]
    for batch in batches:
        status = await closed(batch)
        assert (status.status, status.completed) == ("completed", 30)
        swept = await told(fanout, batch, "swept")
        assert [event["epoch"] for event in swept if event["action"] == "revived"] == [*range(2, status.epoch + 1)]
        # On a machine that is busy enough a living worker may miss its lease; nothing else starts an item again.
        async for row in batch.results():
            assert (len(starts(fanout, batch, row.seq)), row.attempts) == (1 + row.crashes, 0)
