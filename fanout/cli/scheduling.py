"""`schedule apply`, `list`, `preview` and `delete`: schedules from a file."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from fanout.cli.output import printable
from fanout.cli.session import Session
from fanout.cli.views import listing
from fanout.client import Change, Schedule, read_schedules
from fanout.client.schedule_preview import Preview
from fanout.client.schedules import Listed

SchedulesFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A TOML file of schedules.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete schedules of this deployment that the file does not declare.")
]
Count = Annotated[int, typer.Option("--count", metavar="N", help="How many of the next times to show.")]
ScheduleId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="As the file has it.")]


async def apply_schedules(session: Session, file: SchedulesFile, prune: Prune = False) -> None:
    """Creates what is missing and updates what differs from FILE; repeating it changes nothing.

    An operator's pause and note stay. If anything in FILE is wrong nothing is applied.
    """
    schedules = read_schedules(file)
    async with session.connect() as client:
        unknown = _handlers(schedules) - await client.known_handlers()
        changes = await client.schedules.apply(schedules, prune=prune)
    for name in sorted(unknown):
        session.output.note(f"no live worker knows the handler {name}: a start needs one that was there within a day")
    _tell(session, changes)


async def list_schedules(session: Session) -> None:
    """Lists the schedules of this deployment as they stand on the server."""
    async with session.connect() as client:
        found = [each async for each in client.schedules.list()]
    if session.output.as_json:
        for each in found:
            session.output.emit(_line(each))
        return
    table = listing("schedule", "handler", "next", "last", "note")
    for each in found:
        state = "paused" if each.paused else _shown(each.next_at)
        handler, note = (Text(printable(str(words))) for words in (each.request.get("handler", ""), each.note))
        table.add_row(each.schedule_id, handler, state, _shown(each.last_at), note)
    session.output.show(table if found else "there is no schedule")


async def preview_schedules(session: Session, file: SchedulesFile, count: Count = 5) -> None:
    """Shows when the schedules of FILE will fire, in their zones and in UTC, and what may surprise about that.

    The times are the server's own, without jitter. Nothing is applied.
    """
    schedules = read_schedules(file)
    async with session.connect() as client:
        for schedule in schedules:
            _show(session, await client.schedules.preview(schedule, count))


async def delete_schedule(session: Session, schedule_id: ScheduleId) -> None:
    """Deletes a schedule of this deployment; batches that it has started go on."""
    async with session.connect() as client:
        _tell(session, [await client.schedules.delete(schedule_id)])


def _handlers(schedules: Sequence[Schedule]) -> set[str]:
    return {name for each in schedules for name in (each.handler, each.on_close) if name is not None}


def _tell(session: Session, changes: Sequence[Change]) -> None:
    for change in changes:
        if session.output.as_json:
            session.output.emit({"schedule_id": change.schedule_id, "change": change.change})
        else:
            session.output.show(f"{change.schedule_id} {change.change}")


def _line(each: Listed) -> dict[str, Any]:
    return {
        "schedule_id": each.schedule_id,
        "handler": each.request.get("handler"),
        "key": each.request.get("key"),
        "paused": each.paused,
        "note": each.note,
        "next_at": each.next_at,
        "last_at": each.last_at,
        "last_run": each.last_run,
        "missed": each.missed,
        "skipped": each.skipped,
    }


def _show(session: Session, preview: Preview) -> None:
    zone = ZoneInfo(preview.time_zone)
    if session.output.as_json:
        times = [{"local": at.astimezone(zone), "utc": at} for at in preview.times]
        warnings = [{"code": each.code, "detail": each.detail} for each in preview.warnings]
        line = {"schedule_id": preview.schedule_id, "time_zone": preview.time_zone, "times": times}
        session.output.emit({**line, "warnings": warnings})
        return
    table = listing(preview.schedule_id, "UTC")
    for at in preview.times:
        table.add_row(f"{at.astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}", f"{at:%Y-%m-%d %H:%M:%S}")
    session.output.show(table, *(Text(f"warning: {printable(each.detail)}") for each in preview.warnings))


def _shown(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
