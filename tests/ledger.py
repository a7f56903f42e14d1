"""What tests with `tests.handlers.cases` share: the handlers' own ledger, and what the servers tell of a batch."""

import asyncio
from typing import Any

from fanout import BatchHandle, Status
from tests.support import Deployment, WorkerProcess, eventually


async def start_worker(fanout: Deployment, *options: str, handlers: str = "tests.handlers.cases") -> WorkerProcess:
    return await fanout.start_worker(*options, handlers=handlers, FANOUT_TEST_LEDGER=str(fanout.folder))


def calls(fanout: Deployment, seq: int, word: str = "start") -> list[float]:
    """When the handler started on an item, by its own ledger."""
    file = fanout.folder / f"{word}-{seq}"
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


async def closed(batch: BatchHandle, seconds: float = 60) -> Status:
    return await asyncio.wait_for(batch.wait(), seconds)


async def executions(fanout: Deployment, workflow_id: str, at_least: int = 1) -> list[str]:
    """All executions that a workflow id ever had, once visibility knows that many."""

    async def listed() -> list[str]:
        query = f'WorkflowId = "{workflow_id}"'
        found = [run.run_id async for run in fanout.temporal.list_workflows(query)]
        return found if len(found) >= at_least else []

    return await eventually(listed)


async def events(batch: BatchHandle, fanout: Deployment, kind: str) -> list[dict[str, Any]]:
    found = await fanout.client.store.read_events(batch.batch_id, 0)
    return [event["data"] for event in found if event["kind"] == kind]
