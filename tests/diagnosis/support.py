"""What the tests of `doctor` share: an examination in this process, on a deployment of the test's own."""

from datetime import timedelta
from typing import Any

from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleState,
)

from fanout.client.doctor import Doctor
from fanout.client.findings import Finding
from fanout.store import BatchStore, check_schema
from tests.support import Deployment, eventually

CREW = """insert into fanout.workers (id, identity, handlers, build, concurrency, started_at, seen_at)
select gen_random_uuid(), $1, '{"test.echo": {}, "case.type": {}}', $2, 4, now() - span, now() + span
from (select interval '1 day' as span) a_day
"""


async def examine(fanout: Deployment, own_stack: bool = True, **settings: Any) -> dict[str, Finding]:
    """All findings by their code; no code comes twice in these tests."""
    chosen = fanout.settings.with_values(settings)
    store = BatchStore(fanout.pool, timedelta(seconds=chosen.heartbeat_seconds))
    database_id = await check_schema(fanout.pool)
    found = await Doctor(store, fanout.temporal, chosen, database_id, is_own_stack=own_stack).examine()
    by_code = {finding.code.value: finding for finding in found}
    assert len(by_code) == len(found), found
    return by_code


async def add_crew(fanout: Deployment, build: str, identity: str = "crew") -> None:
    """The row of a worker that seems to live for an hour; nobody polls."""
    await fanout.pool.execute(CREW, identity, build)


async def add_schedule(
    fanout: Deployment, schedule_id: str, given: Any, workflow: str = "Batch", paused: bool = False
) -> None:
    """A schedule that will not tick during the test."""
    action = ScheduleActionStartWorkflow(
        workflow, given, id=f"tick-{schedule_id}", task_queue=fanout.settings.names.task_queue
    )
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=300))])
    await fanout.temporal.create_schedule(
        schedule_id, Schedule(action=action, spec=spec, state=ScheduleState(paused=paused))
    )


async def listed(fanout: Deployment, count: int) -> None:
    """Returns once visibility knows that many schedules."""

    async def known() -> bool:
        return len([each.id async for each in await fanout.temporal.list_schedules()]) >= count

    await eventually(known)
