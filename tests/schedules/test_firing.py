"""What a schedule does when it fires: one batch a key, made of what its source says then."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import ScheduleActionExecutionStartWorkflow, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.client import WorkflowExecution as Run
from temporalio.exceptions import ApplicationError

from fanout import BatchHandle
from fanout.store.statements import STATEMENTS
from tests.diagnosis.support import examine
from tests.ledger import calls, closed, start_worker
from tests.schedules.support import changes, declared, on_server, trigger
from tests.support import Deployment, eventually
from tests.test_workflows import first_task

OPEN = {"overlap": "allow_all"}


async def runs(fanout: Deployment, schedule_id: str, count: int = 1) -> list[Run]:
    """The runs that a schedule started, oldest first, once there are so many."""
    query = f'TemporalScheduledById = "fanout-schedule/{schedule_id}"'

    async def listed() -> list[Run]:
        found = [run async for run in fanout.temporal.list_workflows(query)]
        return sorted(found, key=lambda run: run.start_time) if len(found) >= count else []

    return await eventually(listed)


async def answer(fanout: Deployment, run: Run) -> Any:
    return await asyncio.wait_for(fanout.temporal.get_workflow_handle(run.id, run_id=run.run_id).result(), 90)


async def batch_of(fanout: Deployment, schedule_id: str) -> BatchHandle:
    """The batch of the schedule's first run, once that has stored it."""
    await runs(fanout, schedule_id)
    query = "select batch_id from fanout.keys where key like $1"

    async def stored() -> Any:
        return await fanout.pool.fetchval(query, f"%{schedule_id}%")

    return await fanout.client.get(await eventually(stored))


async def payloads(batch: BatchHandle) -> list[tuple[str, Any]]:
    return [(row.item_key, row.payload) async for row in batch.results(with_payload=True)]


async def test_items_are_what_the_source_says_when_it_fires(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker()
    (tmp_path / "in").mkdir()
    sources: dict[str, dict[str, Any]] = {
        "inline": {"items": [{"key": "a", "payload": 1}, {"key": "b", "payload": None}]},
        "single": {"payload": {"key": "k", "payload": "p"}},
        "query": {"sql": "select n as key, n * 2 as double from numbers order by n"},
        "files": {"glob": f"{tmp_path}/in/*.txt", "title": "Files of the day"},
        "nothing": {"glob": f"{tmp_path}/none/*"},
    }
    await changes(fanout, *(declared(name, time_zone="Asia/Tokyo", **facts) for name, facts in sources.items()))
    await fanout.pool.execute("create table numbers as select n from generate_series(1, 3) n")
    (tmp_path / "in" / "one.txt").write_text("x")
    await asyncio.gather(*(trigger(fanout, name) for name in sources))
    found = {}
    for name in sources:
        [run] = await runs(fanout, name)
        told = await answer(fanout, run)
        batch = await fanout.client.get(told["batch_id"])
        status = await closed(batch)
        due = run.id.removeprefix(f"fanout-schedule/{name}-")
        assert (told["outcome"], status.status, status.key) == ("started", "completed", f"{name}/{due}")
        found[name] = await payloads(batch)
    path = str(tmp_path / "in" / "one.txt")
    assert found == {
        "inline": [("a", 1), ("b", None)],
        "single": [("0", {"key": "k", "payload": "p"})],
        "query": [(str(n), {"double": 2 * n}) for n in (1, 2, 3)],
        "files": [(path, {"path": path})],
        "nothing": [],
    }
    [listed] = [each async for each in fanout.client.schedules.list() if each.schedule_id == "files"]
    assert listed.last_run is not None
    assert listed.last_run.startswith("fanout-schedule/files-20")


async def test_schedules_of_one_key_make_one_batch_whatever_their_sources_say_by_then(fanout: Deployment) -> None:
    """The key names the day in the zone; a query's rows may have changed, and a joined start does not read them."""
    await fanout.start_worker()
    names = [f"s{number}" for number in range(5)]
    facts: dict[str, Any] = {"sql": "select random() as n", "key": "report/{date}", "time_zone": "Asia/Tokyo"}
    await changes(fanout, *(declared(name, **facts) for name in names))
    await asyncio.gather(*(trigger(fanout, name) for name in names))
    told = [await answer(fanout, (await runs(fanout, name))[0]) for name in names]
    assert sorted(each["outcome"] == "started" for each in told) == [False] * 4 + [True]
    [batch_id] = {each["batch_id"] for each in told}
    batch = await fanout.client.get(batch_id)
    [run] = await runs(fanout, "s0")
    assert (await closed(batch)).key == f"report/{run.start_time.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d}"
    assert [each.origin for each in await batch.duplicates()] == ["schedule"] * 4


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("writes", {"sql": "delete from fanout.meta returning 1"}, "invalid_request", "may only read"),
    ("fails", {"sql": "select 1 / 0 as n"}, "invalid_request", "division by zero"),
    ("unread", {"sql": "select array[int4range(1, 5)] as spans"}, "invalid_request", "column 'spans'"),
    ("unknown", {"handler": "nobody.knows"}, "unknown_handler", "test.echo"),
    ("twice", {"sql": "select 'a' as key from generate_series(1, 2)"}, "duplicate_item_key", "positions 0 and 1"),
]


async def test_a_start_that_cannot_be_stored_fails_with_the_reason(fanout: Deployment) -> None:
    await fanout.start_worker()
    await changes(fanout, *(declared(name, **facts) for name, facts, _, _ in REFUSED))
    for name, _, code, said in REFUSED:
        await trigger(fanout, name)
        with pytest.raises(WorkflowFailureError) as raised:
            await answer(fanout, (await runs(fanout, name))[0])
        assert isinstance(raised.value.cause, ApplicationError)
        assert (raised.value.cause.type, said in raised.value.cause.message) == (code, True), raised.value.cause
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0
    assert await fanout.pool.fetchval("select count(*) from fanout.meta") == 1


async def test_a_schedule_whose_newest_start_failed_is_found_until_one_succeeds(fanout: Deployment) -> None:
    await fanout.start_worker()
    await changes(fanout, declared(sql="select 1 / 0 as n"))
    await trigger(fanout)
    with pytest.raises(WorkflowFailureError):
        await answer(fanout, (await runs(fanout, "nightly"))[0])

    async def found() -> str:
        finding = (await examine(fanout)).get("schedule_fails")
        return "" if finding is None else finding.detail

    told = await eventually(found)
    assert "schedule fanout-schedule/nightly" in told
    assert "division by zero" in told
    await changes(fanout, declared(sql="select 1 as n"))
    await trigger(fanout)
    await answer(fanout, (await runs(fanout, "nightly", 2))[1])
    await eventually(partial(is_true, found, ""))


FULL = """
create function full_disk() returns trigger language plpgsql as $$ begin raise disk_full; end $$;
create trigger full_disk before insert on fanout.batches
for each row when (new.key like 'retried%') execute function full_disk();
"""


async def test_a_cancel_ends_a_start_that_can_store_nothing(fanout: Deployment) -> None:
    """One that is tried again and again, and one whose query takes for ever."""
    await fanout.start_worker()
    await changes(fanout, declared("retried"), declared("slow", sql="select pg_sleep(3600)"))
    await fanout.pool.execute(FULL)
    await trigger(fanout, "retried")
    await trigger(fanout, "slow")
    reading = (
        "select count(*) from pg_stat_activity where application_name = 'fanout query' and datname = current_database()"
    )
    await eventually(partial(is_true, partial(fanout.pool.fetchval, reading), 1))
    found = [run for name in ("retried", "slow") for run in await runs(fanout, name)]
    for run in found:
        await fanout.temporal.get_workflow_handle(run.id).cancel()
    for run in found:
        await eventually(partial(is_true, partial(status_of, fanout, run), WorkflowExecutionStatus.CANCELED))
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


async def status_of(fanout: Deployment, run: Run, run_id: str | None = None) -> WorkflowExecutionStatus | None:
    return (await fanout.temporal.get_workflow_handle(run.id, run_id=run_id or run.run_id).describe()).status


async def has(fanout: Deployment, run: Run, kind: str) -> bool:
    history = await fanout.temporal.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
    return any(event.HasField(f"{kind}_event_attributes") for event in history.events)  # type: ignore[arg-type]


async def waits(fanout: Deployment, run: Run) -> bool:
    """Whether the run has told Temporal that it waits for its batch."""
    return await has(fanout, run, "timer_started")


LOOKS = """
select count(*) > 0 from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and starts_with(query, left($1, 100))
"""


async def is_true(check: Callable[[], Awaitable[Any]], expected: Any) -> bool:
    return bool(await check() == expected)


async def test_a_schedule_whose_batch_is_open_skips_its_next_start(fanout: Deployment) -> None:
    """Its run lasts as long as the batch; so do a reset of it, and the run that goes on from a history grown long."""
    await start_worker(fanout)
    await changes(fanout, declared("busy", handler="case.deaf", items=[1]))
    await trigger(fanout, "busy")
    batch = await batch_of(fanout, "busy")
    [run] = await runs(fanout, "busy")
    await trigger(fanout, "busy")

    async def skipped() -> int:
        return (await on_server(fanout, "busy")).info.num_actions_skipped_overlap

    await eventually(skipped)
    await eventually(partial(waits, fanout, run))
    done = await fanout.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=fanout.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.id),
            workflow_task_finish_event_id=await first_task(fanout, run.id),
            reason="an operator's reset",
            request_id=run.id,
        )
    )
    again = fanout.temporal.get_workflow_handle(run.id, run_id=done.run_id)
    assert (await again.describe()).status is WorkflowExecutionStatus.RUNNING
    for _ in range(5):
        # Beyond the size at which the server suggests a new one.
        await again.signal("nobody listens", "x" * 1_000_000)
    goes_on = WorkflowExecutionStatus.CONTINUED_AS_NEW
    await eventually(partial(is_true, lambda: status_of(fanout, run, done.run_id), goes_on))
    (fanout.folder / "go").touch()
    told = await asyncio.wait_for(again.result(), 90)
    assert (told["batch_id"], told["outcome"]) == (str(batch.batch_id), "started")
    assert (await closed(batch)).status == "completed"
    assert len(calls(fanout, 0)) == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1


async def test_cancel_other_cancels_the_batch_that_is_open_also_a_paused_one(fanout: Deployment) -> None:
    await start_worker(fanout)
    await changes(fanout, declared("busy", handler="case.obeys", items=[1], overlap="cancel_other"))
    await trigger(fanout, "busy")
    first = await batch_of(fanout, "busy")
    await first.pause()
    await eventually(partial(is_true, lambda: paused_run(fanout, first), True))
    [older] = await runs(fanout, "busy")
    await eventually(partial(another_second_than, older))
    await trigger(fanout, "busy")
    status = await closed(first, 120)
    assert status.status == "cancelled"
    _, newer = await runs(fanout, "busy", 2)
    await eventually(partial(is_true, partial(status_of, fanout, older), WorkflowExecutionStatus.CANCELED))
    await eventually(partial(waits, fanout, newer))
    async with fanout.pool.transaction() as connection:
        # While the run looks at the batch, which takes long, and is not asleep.
        await connection.execute("lock table fanout.progress in access exclusive mode")
        await eventually(partial(fanout.pool.fetchval, LOOKS, STATEMENTS["read_batch"]))
        await fanout.temporal.get_workflow_handle(newer.id).cancel()
        await eventually(partial(has, fanout, newer, "workflow_execution_cancel_requested"))
    await eventually(partial(is_true, partial(status_of, fanout, newer), WorkflowExecutionStatus.CANCELED))
    assert await fanout.pool.fetchval("select count(*) from fanout.batches where status = 'cancelled'") == 2


async def another_second_than(run: Run) -> bool:
    """Whether a start now has another key than the run's: keys name the second."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > run.id[-len("2026-11-30T00:00:00Z") :]


async def paused_run(fanout: Deployment, batch: BatchHandle) -> bool:
    """Whether the batch's run has seen the pause, and sleeps."""
    workflow_id = (await batch.read()).workflow_id
    progress = await fanout.temporal.get_workflow_handle(workflow_id).query("progress")
    return bool(progress["status"] == "paused")


async def test_a_fixed_key_has_one_open_batch_whoever_starts_it(fanout: Deployment) -> None:
    """A schedule that ticks while its batch runs, three clicks within a second, and a submit by hand."""
    await start_worker(fanout)
    nightly = declared(handler="case.deaf", items=[1], key="nightly", dedup="open", **OPEN)
    await changes(fanout, nightly)
    await trigger(fanout)
    [run] = await runs(fanout, "nightly")
    first = (await answer(fanout, run))["batch_id"]
    by_hand = await fanout.client.submit("case.deaf", [1], key="nightly", dedup="open")
    assert (by_hand.outcome, str(by_hand.batch_id)) == ("joined", first)
    for _ in range(3):
        await trigger(fanout)
    batch = await fanout.client.get(first)

    async def recorded() -> set[str]:
        found = [f"{each.origin} {each.outcome}" for each in await batch.duplicates()]
        # To Temporal clicks within one second are one start.
        assert len(found) <= 4
        return {*found} if len(found) > 1 else set()

    assert await eventually(recorded) == {"client joined", "schedule joined"}
    # A start that came after the close would make a batch of its own, by right.
    for done in (await on_server(fanout)).info.recent_actions:
        assert isinstance(done.action, ScheduleActionExecutionStartWorkflow)
        await asyncio.wait_for(fanout.temporal.get_workflow_handle(done.action.workflow_id).result(), 90)
    (fanout.folder / "go").touch()
    await closed(batch)
    assert len(calls(fanout, 0)) == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1
    await trigger(fanout)
    await eventually(partial(is_true, partial(fanout.pool.fetchval, "select count(*) from fanout.batches"), 2))


async def test_ticks_that_a_schedule_makes_by_itself_are_keyed_by_the_time_that_they_were_due(
    fanout: Deployment,
) -> None:
    await fanout.start_worker()
    schedule = declared("often", interval=timedelta(seconds=2), jitter=timedelta(seconds=1), **OPEN)
    await changes(fanout, schedule)
    ticks = await runs(fanout, "often", 3)
    await fanout.client.schedules.delete("often")
    for run in ticks:
        told = await answer(fanout, run)
        due = run.id.removeprefix("fanout-schedule/often-")
        assert (told["key"], told["outcome"], int(due[-3:-1]) % 2) == (f"often/{due}", "started", 0)
