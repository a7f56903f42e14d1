"""What the tests of schedules share."""

from pathlib import Path
from typing import Any

from temporalio.client import ScheduleDescription

from fanout import Schedule
from tests.support import Deployment


def declared(schedule_id: str = "nightly", **facts: Any) -> Schedule:
    """One that fires on no day of this decade, unless the facts say otherwise."""
    when = {} if {"cron", "interval"} & facts.keys() else {"cron": "0 0 1 1 * 2099"}
    items = {} if {"payload", "sql", "glob"} & facts.keys() else {"items": [1, 2, 3]}
    return Schedule(id=schedule_id, **{"handler": "test.echo", **when, **items, **facts})


async def changes(fanout: Deployment, *schedules: Schedule, prune: bool = False) -> dict[str, str]:
    done = await fanout.client.schedules.apply(schedules, prune=prune)
    return {each.schedule_id: str(each.change) for each in done}


async def on_server(fanout: Deployment, schedule_id: str = "nightly") -> ScheduleDescription:
    return await fanout.temporal.get_schedule_handle(f"fanout-schedule/{schedule_id}").describe()


async def trigger(fanout: Deployment, schedule_id: str = "nightly") -> None:
    """A start now, as the Web UI's button makes it."""
    await fanout.temporal.get_schedule_handle(f"fanout-schedule/{schedule_id}").trigger()


async def server_ids(fanout: Deployment) -> set[str]:
    """All schedules of the namespace, as the server lists them a little later."""
    return {each.id async for each in await fanout.temporal.list_schedules()}


def write(folder: Path, text: str) -> str:
    file = folder / "schedules.toml"
    file.write_text(text)
    return str(file)
