"""Single passes over batches whose runs were lost, ended or are in trouble, on real servers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from fanout import BatchHandle
from fanout.contracts import BatchStart, BatchWorkflow
from fanout.metrics import Meters
from fanout.store import SweepStore, check_schema
from fanout.store.audit import count_recorded_twice, install_audit
from tests.ledger import calls
from tests.support import Deployment, eventually
from tests.sweeping.support import (
    UNSWEPT,
    closed,
    delete_run,
    end_run,
    fail_task,
    later,
    quiet,
    quiet_batches,
    run_status,
    start_worker,
    started_alone,
    stored_alone,
    sweeper,
    terminate,
    told,
    two_passes,
)

Ending = Callable[[Deployment, BatchHandle], Awaitable[None]]


async def start_by_hand(fanout: Deployment, batch: BatchHandle, **options: Any) -> None:
    """A run of the batch that no client of ours has started."""
    row = await batch.read()
    start = BatchStart(
        batch_id=options.pop("batch_id", row.id),
        database_id=options.pop("database_id", await check_schema(fanout.pool)),
        handler=row.handler,
        key=row.key,
    )
    await fanout.temporal.start_workflow(
        BatchWorkflow.run, start, id=row.workflow_id, task_queue=fanout.settings.names.task_queue, **options
    )


async def time_out(fanout: Deployment, batch: BatchHandle) -> None:
    await terminate(fanout, batch, "to be started with a time limit")
    await start_by_hand(fanout, batch, execution_timeout=timedelta(seconds=1))
    assert await run_status(fanout, batch) == "TIMED_OUT"


async def hit_a_limit(fanout: Deployment, batch: BatchHandle) -> None:
    """As the server ends a run: with its own identity."""
    await terminate(fanout, batch, "Workflow history count exceeds limit.", identity="history-service")


LOSSES: dict[str, Ending] = {
    "not_found": delete_run,
    "failed": lambda fanout, batch: end_run(fanout, "failed"),
    "completed": lambda fanout, batch: end_run(fanout, "completed"),
    "timed_out": time_out,
    "terminated_by_server": hit_a_limit,
}


@pytest.mark.parametrize("finding", LOSSES)
async def test_a_lost_run_is_replaced_once_two_passes_agree(fanout: Deployment, finding: str) -> None:
    batch = await started_alone(fanout)
    await LOSSES[finding](fanout, batch)
    sweeping = await sweeper(fanout)
    for _ in range(2):
        # Two passes in a row are as good as one.
        report = await sweeping.run_pass()
        assert (report.examined, report.healed) == (1, [])
        assert report.left_alone[0]["cause"] == "not_agreed_yet"
        assert (await batch.read()).epoch == 1
    await later(fanout)
    [healed] = (await sweeping.run_pass()).healed
    assert (healed["batch_id"], healed["action"]) == (batch.batch_id, "revived")
    assert healed["evidence"]["temporal"]["status"] == finding.removesuffix("_by_server")
    assert healed["evidence"]["row"]["status"] == "processing"
    [event] = await told(fanout, batch)
    assert (event["action"], event["epoch"], event["revivals"], event["evidence"]) == (
        *("revived", 2, 1),
        healed["evidence"],
    )
    await start_worker(fanout, **UNSWEPT)
    assert (await closed(batch)).epoch == 2
    assert [len(calls(fanout, seq)) for seq in range(3)] == [1, 1, 1]
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_run_that_a_person_terminated_closes_its_batch_with_that_reason(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "2", **UNSWEPT)
    batch = await fanout.client.submit("case.deaf", range(6))
    await eventually(lambda: _processing(batch, 2))
    await terminate(fanout, batch, "too expensive")
    await quiet(fanout)
    first, second = await two_passes(fanout, await sweeper(fanout))
    assert first.healed == []
    [healed] = second.healed
    assert healed["action"] == "cancelled"
    said = healed["evidence"]["temporal"]
    assert (said["status"], said["identity"], said["reason"]) == ("terminated", "an operator", "too expensive")
    assert (await batch.read()).status == "cancelling"
    (fanout.folder / "go").touch()
    status = await closed(batch)
    assert (status.status, status.reason, status.settled, status.epoch) == ("cancelled", "too expensive", 6, 1)
    assert await run_status(fanout, batch) == "CANCELED"
    assert sum(len(calls(fanout, seq)) for seq in range(6)) == 2
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def _processing(batch: BatchHandle, number: int) -> bool:
    return (await batch.progress()).processing == number


async def test_a_revival_neither_restarts_live_work_nor_runs_what_is_settled(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "4", **UNSWEPT)
    batch = await fanout.client.submit("case.deaf", range(4))
    await eventually(lambda: _processing(batch, 4))
    await hit_a_limit(fanout, batch)
    await quiet(fanout)
    _, second = await two_passes(fanout, await sweeper(fanout))
    assert [line["action"] for line in second.healed] == ["revived"]

    async def is_left_running() -> bool:
        report = await (await sweeper(fanout)).run_pass()
        assert report.healed == []
        return [line["cause"] for line in report.left_alone] == ["running"]

    await eventually(is_left_running)
    (fanout.folder / "go").touch()
    status = await closed(batch)
    assert (status.status, status.completed, status.epoch) == ("completed", 4, 2)
    assert [len(calls(fanout, seq)) for seq in range(4)] == [1] * 4
    assert [calls(fanout, seq, "swallowed") for seq in range(4)] == [[]] * 4, "live work was interrupted"
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0


async def test_a_batch_that_nobody_started_is_started_after_ten_seconds(fanout: Deployment) -> None:
    batch = await stored_alone(fanout)
    sweeping = await sweeper(fanout)
    await quiet(fanout, -60)
    assert (await sweeping.run_pass()).examined == 0
    await quiet(fanout, 60 + 11)
    [healed] = (await sweeping.run_pass()).healed
    assert (healed["action"], healed["evidence"]["temporal"]["status"]) == ("started", "not_found")
    report = await sweeping.run_pass()
    assert (report.healed, report.left_alone[0]["cause"]) == ([], "nobody_polls")
    await start_worker(fanout, **UNSWEPT)
    status = await closed(batch)
    assert (status.status, status.epoch) == ("completed", 1)


async def test_the_start_that_a_sweeper_owes_when_it_dies_is_made_up_for(fanout: Deployment) -> None:
    """Without another revival, and without waiting for two passes."""
    batch = await started_alone(fanout)
    await delete_run(fanout, batch)
    await (sweeping := await sweeper(fanout)).run_pass()
    sweeps = SweepStore(fanout.pool, timedelta(seconds=3))
    [seen] = await quiet_batches(fanout)
    assert await sweeps.revive_batch(seen, {"why": "it dies after this commit"})
    [healed] = (await sweeping.run_pass()).healed
    assert (healed["action"], (await batch.read()).epoch) == ("started", 2)
    [noted] = await fanout.pool.fetch("select revivals, owes_start from fanout.sweeps")
    assert (noted["revivals"], noted["owes_start"]) == (1, False)
    assert (await sweeping.run_pass()).healed == []


async def test_after_three_revivals_a_batch_is_given_up(fanout: Deployment) -> None:
    batch = await started_alone(fanout)
    sweeping = await sweeper(fanout)
    for revivals in (1, 2, 3):
        await delete_run(fanout, batch)
        _, second = await two_passes(fanout, sweeping)
        assert [line["action"] for line in second.healed] == ["revived"]
        assert (await told(fanout, batch))[-1]["revivals"] == revivals
    await delete_run(fanout, batch)
    _, second = await two_passes(fanout, sweeping)
    assert [line["action"] for line in second.healed] == ["failed"]
    await start_worker(fanout, **UNSWEPT)
    status = await closed(batch)
    assert (status.status, status.reason, status.cancelled, status.epoch) == ("failed", "too_many_revivals", 3, 4)
    assert await run_status(fanout, batch) == "FAILED"
    assert await fanout.client.store.read_violations(batch.batch_id) == []


class Noted(Meters):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def count_swept(self, action: str) -> None:
        self.told.append(action)

    def count_stalled(self, cause: str) -> None:
        self.told.append(cause)


async def test_a_run_that_names_another_batch_is_not_this_ones(fanout: Deployment) -> None:
    meters = Noted()
    batch = await stored_alone(fanout)
    await start_by_hand(fanout, batch, batch_id=uuid4())
    await quiet(fanout)
    sweeping = await sweeper(fanout, meters=meters)
    first, second = await two_passes(fanout, sweeping)
    assert [line["cause"] for line in (*first.left_alone, *second.left_alone)] == ["run_of_other_batch"] * 2
    assert [event["cause"] for event in await told(fanout, batch, "stalled")] == ["run_of_other_batch"]
    await terminate(fanout, batch, "in the way")
    [healed] = (await sweeping.run_pass()).healed
    assert healed["action"] == "started"
    assert (await sweeping.run_pass()).left_alone[0]["cause"] == "nobody_polls"
    assert meters.told == ["run_of_other_batch", "started"]


async def test_a_batch_whose_workflow_belongs_to_another_database_is_left_alone(fanout: Deployment) -> None:
    batch = await stored_alone(fanout)
    await start_by_hand(fanout, batch, database_id=uuid4())
    await quiet(fanout)
    _, second = await two_passes(fanout, await sweeper(fanout))
    assert (second.healed, second.left_alone[0]["cause"]) == ([], "run_of_other_database")
    assert (await batch.read()).status == "pending"


async def test_what_holds_up_a_batch_that_runs_is_told_once(fanout: Deployment) -> None:
    batch = await started_alone(fanout)
    sweeping = await sweeper(fanout)
    for _ in range(3):
        await sweeping.run_pass()
        await later(fanout)
    [event] = await told(fanout, batch, "stalled")
    assert event["cause"] == "nobody_polls"
    assert event["evidence"]["temporal"]["status"] == "running"
    for _ in range(3):
        await fail_task(fanout)
    await eventually(lambda: _stalled(fanout, batch, "workflow_task_fails"))
    assert (await batch.read()).epoch == 1


async def _stalled(fanout: Deployment, batch: BatchHandle, cause: str) -> bool:
    await two_passes(fanout, await sweeper(fanout))
    return cause in [event["cause"] for event in await told(fanout, batch, "stalled")]


async def test_a_batch_that_runs_without_progress_is_told_to_be_slow_once(fanout: Deployment) -> None:
    await start_worker(fanout, **UNSWEPT)
    batch = await fanout.client.submit("case.deaf", range(2))
    await eventually(lambda: _processing(batch, 2))
    await quiet(fanout)
    sweeping = await sweeper(fanout)
    await sweeping.run_pass()
    assert await told(fanout, batch) == []
    for _ in range(3):
        await later(fanout, 4)
        assert (await sweeping.run_pass()).healed == []
    [event] = await told(fanout, batch)
    assert event["kind"] == "slow"
    assert event["evidence"]["row"]["quiet_seconds"] >= 4


async def test_the_commands_two_passes_heal_what_one_only_notes(fanout: Deployment) -> None:
    batch = await started_alone(fanout)
    await delete_run(fanout, batch)
    fanout.environment["FANOUT_SWEEP_EVERY_SECONDS"] = "1"
    done = await asyncio.to_thread(fanout.run, "sweep", "--twice", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == ["examined", "healed", "left_alone"]
    assert answer["examined"] == 1
    [healed] = answer["healed"]
    assert list(healed) == ["batch_id", "action", "evidence"]
    assert (healed["batch_id"], healed["action"]) == (str(batch.batch_id), "revived")
    told_people = await asyncio.to_thread(fanout.run, "sweep")
    assert told_people.returncode == 0, told_people.stderr
    assert "1 quiet batches looked at, 0 healed, 1 left as they are" in told_people.stdout
