"""A fault in each gap between a commit and the use of its answer: nothing is lost, done twice or charged."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fanout import BatchHandle, Settings
from fanout.errors import InvalidSetting
from fanout.points import Fault, FaultPoint, FaultPoints, Mishap
from fanout.store.audit import count_recorded_twice, count_settles, install_audit
from tests.bookings import BALANCE, CREATE
from tests.support import Deployment, WorkerProcess, eventually

PAYLOADS = ["bad", "good", "flaky", "good", "bad", "flaky", "good", "good"]
ATTEMPTS = {"bad": 1, "good": 0, "flaky": 1, "held": 0}
MISHAPS = [Mishap.KILL, Mishap.LOSE]
WORKERS_OWN = {
    FaultPoint.ITEM_ENDED: 2,
    FaultPoint.CLAIM_COMMITTED: 1,
    FaultPoint.COMPLETE_COMMITTED: 1,
    FaultPoint.FAIL_COMMITTED: 1,
    FaultPoint.RELEASE_COMMITTED: 1,
    FaultPoint.WORKER_REFRESHED: 2,
    FaultPoint.OPEN_COMMITTED: 1,
    FaultPoint.CLOSE_COMMITTED: 1,
}
"""What a worker passes by itself, and the passing to strike at."""
STEERING = {
    FaultPoint.CANCEL_COMMITTED: "cancel",
    FaultPoint.PAUSE_COMMITTED: "pause",
    FaultPoint.RESUME_COMMITTED: "resume",
    FaultPoint.REOPEN_COMMITTED: "retry",
}
STARTING = [FaultPoint.SUBMIT_COMMITTED, FaultPoint.WORKFLOW_STARTED]


async def start_worker(fanout: Deployment, faults: str = "", handlers: str = "tests.handlers.faulty") -> WorkerProcess:
    return await fanout.start_worker(
        *("--concurrency", "4", "--grace", "1"),
        handlers=handlers,
        FANOUT_TEST_LEDGER=str(fanout.folder),
        FANOUT_FAULT_POINTS=faults,
    )


async def ended(worker: WorkerProcess) -> int:
    """How the worker ended."""

    async def code() -> list[int]:
        found = worker.process.poll()
        return [] if found is None else [found]

    return (await eventually(code))[0]


async def struck(
    fanout: Deployment, worker: WorkerProcess, mishap: Mishap, handlers: str = "tests.handlers.faulty"
) -> None:
    """Returns once the fault has come; starts another worker where it killed this one, as a supervisor would."""
    if mishap is Mishap.KILL:
        assert await ended(worker) == -signal.SIGKILL
        await start_worker(fanout, handlers=handlers)

    async def told() -> bool:
        return "fault point" in worker.log.read_text()

    await eventually(told)


async def prove(fanout: Deployment, batch: BatchHandle, status: str, reopened: int = 0) -> None:
    """The batch closes by itself in that state, each row settled once an epoch, charged what its handler did."""
    seen = await asyncio.wait_for(batch.wait(), 90)
    assert seen.status == status
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await count_settles(fanout.pool, batch.batch_id) == seen.total + reopened
    async for row in batch.results(with_payload=True):
        if row.status != "cancelled":
            assert row.status == ("failed" if row.payload == "bad" else "completed")
            assert row.attempts == ATTEMPTS[row.payload], row
            assert row.result == (None if row.payload == "bad" else row.seq**2)


@pytest.mark.parametrize("point", WORKERS_OWN)
async def test_a_worker_killed_in_a_gap_loses_nothing(fanout: Deployment, point: FaultPoint) -> None:
    await install_audit(fanout.pool)
    worker = await start_worker(fanout, f"{point}=kill@{WORKERS_OWN[point]}")
    batch = await fanout.client.submit("fault.mixed", PAYLOADS)
    await struck(fanout, worker, Mishap.KILL)
    await prove(fanout, batch, "completed_with_failures")


async def test_a_worker_that_loses_every_first_answer_loses_nothing_else(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    worker = await start_worker(fanout, ",".join(f"{point}=lose@{nth}" for point, nth in WORKERS_OWN.items()))
    batch = await fanout.client.submit("fault.mixed", PAYLOADS)
    await prove(fanout, batch, "completed_with_failures")

    async def all_logged() -> bool:
        log = worker.log.read_text()
        return all(f"fault point {point}" in log for point in WORKERS_OWN)

    await eventually(all_logged)


@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_worker_struck_after_the_commit_of_a_handler_s_transaction_books_it_once(
    fanout: Deployment, mishap: Mishap
) -> None:
    await install_audit(fanout.pool)
    await fanout.pool.execute(CREATE)
    faults = f"{FaultPoint.TRANSACTION_COMMITTED}={mishap}@2"
    worker = await start_worker(fanout, faults, "tests.handlers.ledger")
    batch = await fanout.client.submit("ledger.book", [{"amount": number} for number in range(6)])
    await struck(fanout, worker, mishap, "tests.handlers.ledger")
    assert (await asyncio.wait_for(batch.wait(), 90)).completed == 6
    assert [(row.result, row.attempts) async for row in batch.results()] == [(number, 0) for number in range(6)]
    balance = await fanout.pool.fetchrow(BALANCE, batch.batch_id)
    assert balance is not None
    assert tuple(balance) == (0, 6)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_worker_that_stalls_past_its_lease_in_a_gap_settles_nothing_twice(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    points = (FaultPoint.CLAIM_COMMITTED, FaultPoint.COMPLETE_COMMITTED, FaultPoint.WORKER_REFRESHED)
    worker = await start_worker(fanout, ",".join(f"{point}=stall:5@2" for point in points))
    batch = await fanout.client.submit("fault.mixed", PAYLOADS)
    await start_worker(fanout)
    await prove(fanout, batch, "completed_with_failures")
    await struck(fanout, worker, Mishap.STALL)


@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_worker_struck_as_it_leaves_keeps_nothing(fanout: Deployment, mishap: Mishap) -> None:
    await install_audit(fanout.pool)
    worker = await start_worker(fanout, f"{FaultPoint.WORKER_REMOVED}={mishap}")
    batch = await fanout.client.submit("fault.mixed", [*PAYLOADS, "held"], range_size=1)
    await eventually(lambda: settled(batch, len(PAYLOADS)))
    worker.process.send_signal(signal.SIGTERM)
    assert await ended(worker) == (-signal.SIGKILL if mishap is Mishap.KILL else 0)
    (fanout.folder / "go").touch()
    await start_worker(fanout)
    await prove(fanout, batch, "completed_with_failures")


async def test_a_worker_that_loses_the_database_while_it_starts_tries_again(fanout: Deployment) -> None:
    worker = await start_worker(fanout, f"{FaultPoint.WORKER_REFRESHED}=lose@1")
    await struck(fanout, worker, Mishap.LOSE)
    batch = await fanout.client.submit("fault.mixed", ["good"])
    assert (await asyncio.wait_for(batch.wait(), 60)).status == "completed"


async def settled(batch: BatchHandle, number: int) -> bool:
    return (await batch.progress()).settled == number


async def held(fanout: Deployment, word: str) -> BatchHandle:
    """A batch that `word` can change: all but one of its items have settled, and that one is at work."""
    (fanout.folder / "go").unlink(missing_ok=True)
    await install_audit(fanout.pool)
    batch = await fanout.client.submit("fault.mixed", [*PAYLOADS, "held"], range_size=1)
    await eventually(lambda: settled(batch, len(PAYLOADS)))
    if word == "resume":
        await batch.pause()
    return batch


async def let_go(fanout: Deployment, batch: BatchHandle, word: str) -> None:
    """After `word` was asked for and struck, and then asked for again: lets the batch close, and proves it."""
    seen = await batch.progress()
    if word == "pause":
        assert seen.status == "paused"
        await batch.resume()
    (fanout.folder / "go").touch()
    assert seen.epoch == (2 if word == "retry" else 1)
    ending = "cancelled" if word == "cancel" else "completed_with_failures"
    await prove(fanout, batch, ending, reopened=2 if word == "retry" else 0)


@pytest.mark.parametrize("point", STEERING)
async def test_a_worker_killed_in_an_update_answers_it_all_the_same(fanout: Deployment, point: FaultPoint) -> None:
    word = STEERING[point]
    worker = await start_worker(fanout, f"{point}=kill")
    batch = await held(fanout, word)
    asked = asyncio.create_task(update(fanout, batch, word))
    await struck(fanout, worker, Mishap.KILL)
    await asyncio.wait_for(asked, 60)
    await let_go(fanout, batch, word)


async def test_a_worker_that_loses_the_answer_to_an_update_answers_it_all_the_same(fanout: Deployment) -> None:
    worker = await start_worker(fanout, ",".join(f"{point}=lose" for point in STEERING))
    for point, word in STEERING.items():
        batch = await held(fanout, word)
        await asyncio.wait_for(update(fanout, batch, word), 60)
        assert f"fault point {point}" in worker.log.read_text()
        await let_go(fanout, batch, word)


async def update(fanout: Deployment, batch: BatchHandle, word: str) -> None:
    workflow = fanout.temporal.get_workflow_handle((await batch.progress()).workflow_id)
    await workflow.execute_update(word)


def call(fanout: Deployment, faults: str, *arguments: str, text: str | None = None) -> Awaitable[CompletedProcess[str]]:
    """`starter.py` with these faults armed."""
    armed = replace(fanout, environment={**fanout.environment, "FANOUT_FAULT_POINTS": faults})
    return asyncio.to_thread(armed.run, *arguments, text=text)


def was_struck(done: CompletedProcess[str], mishap: Mishap) -> bool:
    return done.returncode == (-signal.SIGKILL if mishap is Mishap.KILL else 3)


@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_command_struck_in_a_gap_can_be_given_again(fanout: Deployment, mishap: Mishap) -> None:
    await start_worker(fanout)
    for point, word in STEERING.items():
        batch = await held(fanout, word)
        done = await call(fanout, f"{point}={mishap}", word, str(batch.batch_id))
        assert was_struck(done, mishap), done.stderr
        again: Callable[[], Awaitable[object]] = getattr(batch, word)
        await again()
        await let_go(fanout, batch, word)


@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_submit_struck_in_a_gap_can_be_repeated(fanout: Deployment, mishap: Mishap) -> None:
    await install_audit(fanout.pool)
    await start_worker(fanout)
    items = "\n".join(f'"{payload}"' for payload in PAYLOADS)
    for point in STARTING:
        submit = ("submit", "fault.mixed", "--items", "-", "--key", point)
        done = await call(fanout, f"{point}={mishap}", *submit, text=items)
        assert was_struck(done, mishap), done.stderr
        again = await call(fanout, "", *submit, text=items)
        assert again.returncode == 0, again.stderr
        await prove(fanout, await fanout.client.get(f"fault.mixed/{point}"), "completed_with_failures")
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == len(STARTING)


@pytest.mark.parametrize("point", FaultPoint)
async def test_a_point_strikes_at_the_passing_that_is_named(point: FaultPoint) -> None:
    settings = Settings.from_environment({"FANOUT_FAULT_POINTS": f"{point}=lose@2, {point}=lose@4+"})
    points = FaultPoints.armed(settings.fault_points)
    assert points is not None
    lost = []
    for passing in range(1, 7):
        try:
            await points.reach(point)
        except ConnectionError:
            lost.append(passing)
    assert lost == [2, 4, 5, 6]


def test_without_faults_there_are_no_points() -> None:
    assert FaultPoints.armed(Settings.from_environment({}).fault_points) is None


@pytest.mark.parametrize(
    "text", ["claim.committed", "claim=kill", "claim.committed=die", "claim.committed=stall", "close.committed=kill@0"]
)
def test_a_fault_that_cannot_be_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidSetting, match="FANOUT_FAULT_POINTS") as refused:
        Settings.from_environment({"FANOUT_FAULT_POINTS": text})
    assert text.partition("=")[0] in str(refused.value)


def test_the_seconds_of_a_stall_may_have_a_fraction() -> None:
    assert Fault.parse("item.ended=stall:0.5@3") == Fault(FaultPoint.ITEM_ENDED, Mishap.STALL, 0.5, 3)


def test_every_point_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    assert [point for point in FaultPoint if f"`{point}`" not in page] == []
