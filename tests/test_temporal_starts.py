"""Batches started with nothing but Temporal: its program, its Schedules, and the JSON that its Web UI sends."""

import asyncio
import json
import sys
import time
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleOverlapPolicy,
    ScheduleSpec,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError

from fanout import BatchHandle
from fanout.devstack.programs import find_programs
from fanout.store.audit import count_recorded_twice, install_audit
from tests.diagnosis.support import examine
from tests.ledger import calls, closed, start_worker
from tests.support import ROOT, Deployment, eventually
from tests.test_workflows import first_task

Handle = WorkflowHandle[Any, Any]
ANSWER = {"batch_id", "workflow_id", "handler", "key", "outcome", "total"}


async def start(fanout: Deployment, request: Any, workflow_id: str | None = None) -> Handle:
    """As the Web UI's form does: plain JSON, by the name of the type, under any id."""
    plain = await Client.connect(fanout.servers.temporal["target_host"], namespace=fanout.temporal.namespace)
    return await plain.start_workflow("Batch", request, id=workflow_id or f"form-{uuid4().hex}", task_queue="fanout")


async def run_program(fanout: Deployment, *arguments: str) -> str:
    """Runs the `temporal` program to its end, and answers what it says."""
    process = await asyncio.create_subprocess_exec(
        str(find_programs(fanout.settings).temporal),
        *arguments,
        "--address",
        fanout.servers.temporal["target_host"],
        "--namespace",
        fanout.temporal.namespace,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


async def start_by_program(fanout: Deployment, request: Any, *options: str) -> str:
    command = ("workflow", "start", "--type", "Batch", "--task-queue", "fanout", "--input", json.dumps(request))
    return await run_program(fanout, *command, *options)


async def refusal(handle: Handle) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as raised:
        await asyncio.wait_for(handle.result(), 60)
    assert isinstance(raised.value.cause, ApplicationError)
    return raised.value.cause


async def test_a_start_by_temporals_program_runs_the_batch(fanout: Deployment) -> None:
    await fanout.start_worker()
    items = [{"key": "a", "payload": {"n": 1}}, {"key": "b", "payload": None}]
    request = {"handler": "test.echo", "key": "k", "items": items, "title": "By hand", "max_failures": "50%"}
    await start_by_program(fanout, request, "--workflow-id", "any")
    answer = await asyncio.wait_for(fanout.temporal.get_workflow_handle("any").result(), 60)
    assert answer.keys() >= ANSWER
    assert (answer["workflow_id"], answer["outcome"], answer["total"]) == ("fanout/test.echo/k", "started", 2)
    batch = await fanout.client.get("test.echo/k")
    assert answer["batch_id"] == str(batch.batch_id)
    status = await closed(batch)
    assert (status.status, status.title, status.max_failures) == ("completed", "By hand", "50%")
    assert [(row.item_key, row.result) async for row in batch.results()] == [("a", {"n": 1}), ("b", None)]
    again = await (await start(fanout, request)).result()
    assert (again["outcome"], again["batch_id"]) == ("already_done", answer["batch_id"])
    other = await refusal(await start(fanout, {**request, "items": [1]}))
    assert (other.type, "item 0" in other.message) == ("key_conflict", True)
    assert [(each.origin, each.outcome) for each in await batch.duplicates()] == [("temporal", "already_done")]


async def test_a_start_under_the_batchs_own_id_goes_on_as_its_run(fanout: Deployment) -> None:
    await fanout.start_worker()
    request = {"handler": "test.echo", "key": "own", "items": [1, 2, 3]}
    handle = await start(fanout, request, "fanout/test.echo/own")
    result = await asyncio.wait_for(handle.result(), 60)
    assert (result["status"], result["completed"]) == ("completed", 3)
    batch = await fanout.client.get("test.echo/own")
    assert (await closed(batch)).duplicates == 0
    again = await (await start(fanout, request, "fanout/test.echo/own")).result()
    assert (again["outcome"], again["batch_id"]) == ("already_done", str(batch.batch_id))
    new = await (await start(fanout, {**request, "dedup": "open"}, "fanout/test.echo/own")).result()
    assert new["completed"] == 3
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2


async def test_without_a_key_every_start_is_a_batch_of_its_own(fanout: Deployment) -> None:
    await fanout.start_worker()
    handles = [await start(fanout, {"handler": "test.echo", "items": [1]}) for _ in range(2)]
    answers = [await handle.result() for handle in handles]
    assert {answer["outcome"] for answer in answers} == {"started"}
    assert len({answer["batch_id"] for answer in answers}) == 2
    for answer in answers:
        assert (await closed(await fanout.client.get(answer["batch_id"]))).completed == 1


FIRED = {"id": "x"}
WRONG: list[tuple[Any, str, str]] = [
    (None, "invalid_request", "JSON object"),
    ("text", "invalid_request", "JSON object"),
    ([], "invalid_request", "JSON object"),
    ({}, "invalid_request", "items is a list"),
    ({"items": []}, "invalid_request", "a handler's name"),
    ({"handler": 5, "items": []}, "invalid_request", "a handler's name"),
    ({"handler": "test.echo"}, "invalid_request", "items is a list"),
    ({"handler": "test.echo", "items": {"a": 1}}, "invalid_request", "items is a list"),
    ({"handler": "test.echo", "items": [], "itmes": []}, "invalid_request", "there is no 'itmes'"),
    ({"handler": "nobody.knows", "items": []}, "unknown_handler", "test.echo"),
    ({"handler": "test.echo", "items": [], "on_close": "nobody.knows"}, "unknown_handler", "nobody.knows"),
    ({"handler": "test.echo", "items": [], "key": 5}, "invalid_request", "key must be a string"),
    ({"handler": "test.echo", "items": [], "key": "x" * 151}, "invalid_request", "the limit is 150 bytes"),
    ({"handler": "test.echo", "items": [], "title": ["x"]}, "invalid_request", "title"),
    ({"handler": "test.echo", "items": [], "range_size": "7"}, "invalid_request", "range size"),
    ({"handler": "test.echo", "items": [], "max_failures": 1.5}, "invalid_request", "max_failures"),
    ({"handler": "test.echo", "items": [], "deadline": 60}, "invalid_request", "deadline"),
    ({"handler": "test.echo", "items": [], "dedup": "sometimes"}, "invalid_request", "dedup"),
    ({"handler": "test.echo", "items": [], "allow_unknown": "yes"}, "invalid_request", "allow_unknown"),
    ({"handler": "test.echo", "items": [{"key": k, "payload": 1} for k in "aba"]}, "duplicate_item_key", "0 and 2"),
    ({"handler": "test.echo", "items": [{"key": 1, "payload": 1}]}, "invalid_item", "item 0"),
    ({"handler": "test.echo", "items": [1, {"key": "a", "payload": 1}]}, "invalid_item", "item 1"),
    ({"handler": "test.echo", "items": [1, "x" * 1_100_000]}, "invalid_item", "item 1"),
    ({"handler": "test.echo", "items": ["a\0"]}, "invalid_item", "U+0000"),
    ({"handler": "test.echo", "sql": "select 1"}, "invalid_request", "there is no 'sql'"),
    ({"handler": "test.echo", "items": [], "schedule": 5}, "invalid_request", "schedule is an object"),
    ({"handler": "test.echo", "items": [], "schedule": {"id": "x", "zone": "UTC"}}, "invalid_request", "schedule is"),
    ({"handler": "test.echo", "items": [], "schedule": {**FIRED, "time_zone": "Mars"}}, "invalid_request", "IANA"),
    ({"handler": "test.echo", "items": [], "schedule": {**FIRED, "waits": 1}}, "invalid_request", "waits is true or"),
    ({"handler": "test.echo", "items": [], "schedule": FIRED, "key": "{when}"}, "invalid_request", "it can name"),
    ({"handler": "test.echo", "items": [], "schedule": FIRED}, "invalid_request", "no schedule made this start"),
    ({"handler": "test.echo", "items": [], "schedule": FIRED, "key": 5}, "invalid_request", "key must be a string"),
    ({"handler": "test.echo", "sql": 5, "schedule": FIRED}, "invalid_request", "sql must be a string"),
    ({"handler": "test.echo", "glob": "/in/\0/*", "schedule": FIRED}, "invalid_request", "U+0000"),
    ({"handler": "test.echo", "sql": "select 1 -- \0", "schedule": FIRED}, "invalid_request", "U+0000"),
    ({"handler": "test.echo", "sql": "", "glob": "", "schedule": FIRED}, "invalid_request", "not sql and glob"),
    ({"handler": "test.echo", "schedule": FIRED}, "invalid_request", "items is a list"),
]


async def test_a_bad_request_fails_at_once_with_the_reason(fanout: Deployment) -> None:
    """And never leaves a workflow task that is tried for ever."""
    await fanout.start_worker()
    handles = [await start(fanout, request) for request, _, _ in WRONG]
    for handle, (request, code, said) in zip(handles, WRONG, strict=True):
        found = await refusal(handle)
        assert (found.type, found.non_retryable) == (code, True), (str(request)[:80], found)
        assert said in found.message, (str(request)[:80], found.message)
    await run_program(
        fanout, "workflow", "start", "--type", "Batch", "--task-queue", "fanout", "--workflow-id", "nothing"
    )
    assert (await refusal(fanout.temporal.get_workflow_handle("nothing"))).type == "invalid_request"
    await start_by_program(fanout, {"handler": "test.echo", "items": []}, "--workflow-id", "two", "--input", "1")
    assert "one input, not 2" in (await refusal(fanout.temporal.get_workflow_handle("two"))).message
    for table in ("batches", "items", "keys", "duplicates"):
        assert await fanout.pool.fetchval(f"select count(*) from fanout.{table}") == 0


@pytest.mark.parametrize(
    "text",
    ['{"handler":"test.echo","items":[1e400]}', '{"batch_id":"x","database_id":"y","handler":"test.echo","key":"k"}'],
)
async def test_json_that_is_no_request_fails_too(fanout: Deployment, text: str) -> None:
    await fanout.start_worker()
    command = ("workflow", "start", "--type", "Batch", "--task-queue", "fanout", "--workflow-id", "odd", "--input")
    await run_program(fanout, *command, text)
    assert (await refusal(fanout.temporal.get_workflow_handle("odd"))).type in ("invalid_item", "ValidationError")
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


async def test_a_stale_lease_is_no_reason_to_refuse_a_start(fanout: Deployment) -> None:
    """A refusal is for good: what a worker that was seen today can run is known, and what this one can run anyway."""
    other = await fanout.start_worker(handlers="tests.handlers.faulty", FANOUT_TEST_LEDGER=str(fanout.folder))
    other.kill()
    await fanout.start_worker()
    await fanout.pool.execute("update fanout.workers set seen_at = seen_at - interval '1 hour'")
    for handler in ("test.echo", "fault.mixed"):
        answer = await (await start(fanout, {"handler": handler, "items": []})).result()
        assert (answer["handler"], answer["outcome"]) == (handler, "started")
    assert (await refusal(await start(fanout, {"handler": "nobody.knows", "items": []}))).type == "unknown_handler"


async def test_a_reset_of_the_start_makes_no_second_batch(fanout: Deployment) -> None:
    await fanout.start_worker()
    for number, key in enumerate((None, "k")):
        request = {"handler": "test.echo", "items": [1, 2], "key": key}
        workflow_id = f"start-{number}"
        answer = await (await start(fanout, request, workflow_id)).result()
        batch = await fanout.client.get(answer["batch_id"])
        await closed(batch)
        done = await fanout.temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=fanout.temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=workflow_id),
                workflow_task_finish_event_id=await first_task(fanout, workflow_id),
                reason="an operator's reset",
                request_id=workflow_id,
            )
        )
        repeated = await fanout.temporal.get_workflow_handle(workflow_id, run_id=done.run_id).result()
        assert (repeated["batch_id"], repeated["outcome"]) == (answer["batch_id"], "started")
        assert (await batch.progress()).duplicates == 0
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2


@pytest.mark.chaos
@pytest.mark.parametrize("mishap", ["kill", "lose"])
@pytest.mark.parametrize("point", ["submit.committed", "workflow.started"])
async def test_a_lost_answer_of_a_start_makes_no_second_batch(fanout: Deployment, point: str, mishap: str) -> None:
    """The next try, by the next worker if this one is dead, finds what the first one did."""
    first = await fanout.start_worker(FANOUT_FAULT_POINTS=f"{point}={mishap}")
    handle = await start(fanout, {"handler": "test.echo", "items": [1] * 300, "key": "k"})
    await eventually(partial(has_batch, fanout))
    if mishap == "kill":
        first.process.wait(60)
        await fanout.start_worker()
    answer = await asyncio.wait_for(handle.result(), 90)
    assert answer["outcome"] == "started"
    status = await closed(await fanout.client.get("test.echo/k"), 90)
    assert (status.completed, status.duplicates) == (300, 0)
    assert f"fault point {point}" in first.log.read_text()


async def has_batch(fanout: Deployment) -> bool:
    return bool(await fanout.pool.fetchval("select count(*) from fanout.batches"))


async def test_whatever_starts_a_key_makes_one_batch(fanout: Deployment) -> None:
    """Seven Schedules, which append a time to every id, seven processes and twenty starts by Temporal's own program."""
    await install_audit(fanout.pool)
    await start_worker(fanout)
    request = {"handler": "case.type", "key": "nightly", "items": [1, 2, 3]}
    await asyncio.gather(
        *(schedule(fanout, f"schedule-{number}", request) for number in range(7)),
        submit_by_processes(fanout, 7),
        *(start_by_program(fanout, request, "--workflow-id", f"by-hand-{number}") for number in range(20)),
    )
    batch = await fanout.client.get("case.type/nightly")
    await eventually(lambda: has_duplicates(batch, 33), 120)
    status = await closed(batch)
    assert (status.status, status.completed, status.duplicates) == ("completed", 3, 33)
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1
    assert [len(calls(fanout, seq)) for seq in range(3)] == [1, 1, 1]
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    origins = [each.origin for each in await batch.duplicates()]
    assert {*origins} == {"schedule", "cli", "temporal"}
    assert sum(origins.count(origin) for origin in ("schedule", "cli", "temporal")) == 33
    await check_named(fanout, [f"schedule-{number}" for number in range(7)])


async def check_named(fanout: Deployment, schedules: list[str]) -> None:
    """Doctor names every schedule of the key."""

    async def listed() -> bool:
        return {each.id async for each in await fanout.temporal.list_schedules()} >= {*schedules}

    await eventually(listed)
    found = (await examine(fanout))["duplicate_schedules"]
    assert found.detail.startswith("7 schedules")
    assert [name for name in schedules if name not in f"{found.detail} {found.fix}"] == []
    assert found.fix.count("temporal schedule delete") == 6


async def has_duplicates(batch: BatchHandle, count: int) -> bool:
    return (await batch.progress()).duplicates == count


async def schedule(fanout: Deployment, name: str, request: Any) -> None:
    """A Schedule that has its one tick now."""
    action = ScheduleActionStartWorkflow("Batch", request, id=name, task_queue="fanout")
    handle = await fanout.temporal.create_schedule(name, Schedule(action=action, spec=ScheduleSpec()))
    await handle.trigger()
    workflows = f'TemporalScheduledById = "{name}"'
    await eventually(lambda: is_listed(fanout, workflows))
    [run] = [run async for run in fanout.temporal.list_workflows(workflows)]
    assert run.id.startswith(f"{name}-20")


async def is_listed(fanout: Deployment, query: str) -> bool:
    return [run async for run in fanout.temporal.list_workflows(query)] != []


async def submit_by_processes(fanout: Deployment, count: int) -> None:
    """Processes that all wait, connected, for the items, and get them in the same millisecond."""
    command = ("starter.py", "submit", "case.type", "--items", "-", "--key", "nightly", "--json")
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            cwd=ROOT,
            env=fanout.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(count)
    ]
    await eventually(lambda: are_connected(fanout, count), 120)
    for process, (_, said) in zip(
        processes, await asyncio.gather(*(process.communicate(b"1\n2\n3\n") for process in processes)), strict=True
    ):
        assert process.returncode == 0, said


async def are_connected(fanout: Deployment, count: int) -> bool:
    """Whether so many clients beside the test's own have a session; nothing of theirs ends before the items come."""
    sessions = """select count(distinct client_port) from pg_stat_activity
        where datname = current_database() and application_name = 'fanout client'"""
    # A session that rests for a minute is closed.
    await fanout.client.workers()
    return bool(await fanout.pool.fetchval(sessions) > count)


async def test_a_schedule_starts_a_new_batch_at_each_tick_by_its_policy(fanout: Deployment) -> None:
    await fanout.start_worker()
    request = {"handler": "test.echo", "key": "hourly", "items": [1], "dedup": "open"}
    action = ScheduleActionStartWorkflow("Batch", request, id="hourly", task_queue="fanout")
    handle = await fanout.temporal.create_schedule("hourly", Schedule(action=action, spec=ScheduleSpec()))
    for number in range(1, 4):
        await handle.trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL)
        await eventually(partial(has_closed, fanout, number))
        # To Temporal two clicks within one second are one start.
        await eventually(partial(is_another_second, int(time.time())))
    assert await fanout.pool.fetchval("select count(*) from fanout.duplicates") == 0


async def is_another_second(seconds: int) -> bool:
    return int(time.time()) > seconds


async def has_closed(fanout: Deployment, count: int) -> bool:
    query = "select count(*) from fanout.batches where closed_at is not null"
    return bool(await fanout.pool.fetchval(query) == count)
