"""Schedules from a TOML file: a table `[schedules.ID]` for each, with the fields of `Schedule`."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fanout.client.schedule import Schedule, crossed, key_fault
from fanout.errors import InvalidRequest, InvalidSchedules, shorten

TABLE = "schedules"
Fault = tuple[str | None, str | None, str]


def read_schedules(file: Path) -> list[Schedule]:
    """The schedules that the file declares; raises InvalidSchedules with every wrong field of every one of them."""
    name = str(file)
    given = _read(file, name)
    faults: list[Fault] = [
        (None, _shown(other), f"there is no such table; there is [{TABLE}.ID]") for other in given if other != TABLE
    ]
    tables = given.get(TABLE, {})
    if not isinstance(tables, dict):
        raise InvalidSchedules(name, [(None, TABLE, f"it is a table for each schedule: [{TABLE}.ID]")])
    found = [_schedule(schedule_id, fields) for schedule_id, fields in tables.items()]
    faults += [fault for each in found if isinstance(each, list) for fault in each]
    if faults:
        raise InvalidSchedules(name, faults)
    return [each for each in found if isinstance(each, Schedule)]


def _read(file: Path, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise InvalidRequest(f"{name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidSchedules(name, [(None, None, "it is not UTF-8")]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidSchedules(name, [(None, None, f"it is not TOML: {error}")]) from None


def _schedule(schedule_id: str, fields: Any) -> Schedule | list[Fault]:
    where = _shown(schedule_id)
    if not isinstance(fields, dict):
        return [(where, None, f"it is a table: [{TABLE}.{where}]")]
    if "id" in fields:
        return [(where, "id", f"the name of the table [{TABLE}.{where}] is the id")]
    try:
        return Schedule(id=schedule_id, **fields)
    except ValidationError as error:
        return [*_single(where, error), *_together(where, schedule_id, fields)]


def _single(where: str, error: ValidationError) -> list[Fault]:
    """Each field that is wrong by itself."""
    return [
        (where, _shown(".".join(map(str, each["loc"]))), _reason(each["type"], each["msg"]))
        for each in error.errors(include_url=False)
        if each["loc"]
    ]


def _shown(name: str) -> str:
    """A name of the file's as a terminal may show it."""
    short = shorten(name)
    return short if short.isprintable() else repr(short)


def _reason(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"there is no such field; there are {', '.join(name for name in Schedule.model_fields if name != 'id')}"
    return "it is missing" if kind == "missing" else message.removeprefix("Value error, ")


def _together(where: str, schedule_id: str, fields: dict[str, Any]) -> list[Fault]:
    """What is wrong with fields that may each be right."""
    faults: list[Fault] = [(where, name, reason) for name, reason in crossed(fields.keys())]
    if "key" in fields and (fault := key_fault(schedule_id, fields["key"], "UTC")):
        faults.append((where, "key", fault))
    return faults
