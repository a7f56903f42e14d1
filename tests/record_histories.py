"""Records the histories that tests/test_workflows.py replays: `.venv/bin/python -m tests.record_histories`.

Run it when a release is made, and keep the files of earlier releases: they are what running batches look like.
"""

import asyncio
import json
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError

from fanout import Schedule, Settings
from fanout.client import BatchHandle
from fanout.contracts import SweepStart, SweepTickWorkflow
from fanout.devstack import use
from fanout.exits import leave
from fanout.store import check_schema
from tests.conftest import make_template
from tests.support import ROOT, Deployment, deployment, eventually

FOLDER = Path(__file__).parent / "histories"
RELEASE = "0.1.0"


async def record() -> None:
    """Runs one batch of each kind and saves what Temporal kept of it."""
    with use(Settings(home=ROOT / ".fanout" / "tests")) as stack:
        template = await make_template(stack)
        async with deployment(stack, template, Path(tempfile.mkdtemp()), heartbeat_seconds=3.0) as fanout:
            await fanout.start_worker("--concurrency", "10")
            await save(fanout, "batch-empty", await fanout.client.submit("test.noop", []))
            await save(fanout, "batch-flaky", await fanout.client.submit("test.flaky", [0, 1, 2] * 7))
            await save(fanout, "batch-slow", await fanout.client.submit("test.sleep", [{"seconds": 0.4}] * 40))
            big = await fanout.client.submit("test.noop", range(12_000))
            await save(fanout, "batch-sharded", big)
            await save_history(fanout, "shard", f"{(await big.read()).workflow_id}/1/0")
            await save(fanout, "batch-cancelled", await cancelled(fanout))
            slow = [{"seconds": 20.0}] * 20
            expired = await fanout.client.submit(
                "test.sleep", slow, deadline=timedelta(seconds=2), on_close="test.noop"
            )
            await save(fanout, "batch-deadline", expired)
            await save(fanout, "batch-budget", await resumed(fanout))
            await save_sweep(fanout)
            await save_requests(fanout)
            await save_scheduled(fanout)
            save_bad()


async def cancelled(fanout: Deployment) -> BatchHandle:
    batch = await fanout.client.submit("test.sleep", [{"seconds": 0.3}] * 60)

    async def half() -> bool:
        return (await batch.progress()).settled >= 20

    await eventually(half)
    await batch.cancel("recorded")
    return batch


async def resumed(fanout: Deployment) -> BatchHandle:
    batch = await fanout.client.submit("test.fail", range(40), max_failures=20, range_size=1)

    async def paused() -> bool:
        return (await batch.progress()).status == "paused"

    await eventually(paused)
    await batch.resume()
    return batch


async def save_sweep(fanout: Deployment) -> None:
    start = SweepStart(database_id=await check_schema(fanout.pool), deployment="fanout", limit_seconds=30)
    queue = fanout.settings.names.task_queue
    await fanout.temporal.execute_workflow(SweepTickWorkflow.run, start, id="tick", task_queue=queue)
    await save_history(fanout, "tick", "tick")
    await save_history(fanout, "sweeper", fanout.settings.names.sweeper)


async def save_requests(fanout: Deployment) -> None:
    """Starts without our client: one hands its batch over, one goes on as its run, one is refused."""
    request = {"handler": "test.noop", "key": "asked", "items": [1, 2, 3]}
    for name, workflow_id, asked in (
        ("request-started", "by-hand", request),
        ("request-own", "fanout/test.noop/own", {**request, "key": "own"}),
        ("request-refused", "wrong", {**request, "items": 5}),
    ):
        handle = await fanout.temporal.start_workflow("Batch", asked, id=workflow_id, task_queue="fanout")
        with suppress(WorkflowFailureError):
            await handle.result()
        await save_history(fanout, name, workflow_id, handle.result_run_id)


async def save_scheduled(fanout: Deployment) -> None:
    """A schedule's start, whose run waits for its batch."""
    items = [{"seconds": 3.0}] * 5
    schedule = Schedule(id="recorded", handler="test.sleep", cron="0 0 1 1 * 2099", items=items)
    await fanout.client.schedules.apply([schedule])
    server_id = fanout.settings.names.schedule_id(schedule.id)
    await fanout.temporal.get_schedule_handle(server_id).trigger()

    async def started() -> list[str]:
        return [run.id async for run in fanout.temporal.list_workflows(f'TemporalScheduledById = "{server_id}"')]

    [workflow_id] = await eventually(started)
    await save_history(fanout, "request-scheduled", workflow_id)


async def save(fanout: Deployment, name: str, batch: BatchHandle) -> None:
    await batch.wait()
    await save_history(fanout, name, (await batch.read()).workflow_id)


async def save_history(fanout: Deployment, name: str, workflow_id: str, run_id: str | None = None) -> None:
    handle = fanout.temporal.get_workflow_handle(workflow_id, run_id=run_id)

    async def ended() -> bool:
        description = await handle.describe()
        return description.status is not None and description.status.name != "RUNNING"

    await eventually(ended)
    text = json.dumps(json.loads((await handle.fetch_history()).to_json(), object_hook=without_trace), indent=1)
    (FOLDER / f"{name}-{RELEASE}.json").write_text(text + "\n")
    print(f"{name}: {len(text):,} bytes")


def without_trace(found: dict[str, Any]) -> dict[str, Any]:
    """A stack trace names the folders of the machine that it was recorded on, and no replay reads it."""
    return {name: value for name, value in found.items() if name != "stackTrace"}


def save_bad() -> None:
    """A history that this code cannot have written: its ranges were run by an activity of another name."""
    text = (FOLDER / f"batch-slow-{RELEASE}.json").read_text()
    (FOLDER / f"bad-{RELEASE}.json").write_text(text.replace("process_range", "process_items"))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(record())
    leave(0)
