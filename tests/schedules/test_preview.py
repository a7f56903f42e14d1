"""A preview tells the times at which the server will fire, and what may surprise about them."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fanout.client.clock_changes import ClockChange, clock_changes
from fanout.client.schedule_preview import Preview
from fanout.errors import InvalidRequest
from tests.schedules.support import changes, declared, on_server, server_ids, write
from tests.support import Deployment, eventually
from tests.test_cli import lines

BERLIN = {"time_zone": "Europe/Berlin"}
# Each with the codes of what is warned of; clock changes aside, which depend on the day on which this runs.
ODD: list[tuple[dict[str, Any], set[str]]] = [
    ({"cron": "30 2 * * *", **BERLIN}, set()),
    ({"cron": "*/20 * * * *", **BERLIN}, set()),
    ({"cron": "0 0 13 * 5"}, {"both_days"}),
    ({"cron": "0 0 2 * * *"}, {"six_fields"}),
    ({"cron": "30 0 0 2 * * *"}, set()),
    ({"cron": "0 0 30 2 *"}, {"never"}),
    ({"cron": "0 0 1 1 * 2001"}, {"never"}),
    ({"cron": "0 0 29 2 *"}, set()),
    ({"cron": "0 0 1 1 * 2090-2099/3"}, set()),
    ({"cron": "@every 90m", **BERLIN}, {"every"}),
    ({"cron": "0 12 * * 7", "time_zone": "Pacific/Chatham"}, set()),
    ({"cron": "0 0 * * *", "time_zone": "America/Sao_Paulo"}, set()),
    ({"interval": timedelta(hours=7)}, set()),
    ({"cron": "*/10 * * * *", "jitter": timedelta(minutes=10)}, {"jitter"}),
    ({"cron": "@daily", "jitter": timedelta(hours=1)}, set()),
    ({"cron": "@daily", "key": "one"}, {"one_batch"}),
    ({"cron": "@daily", "key": "one", "dedup": "open", "overlap": "terminate_other"}, {"terminate_other"}),
]


async def test_a_preview_agrees_with_the_server_and_leaves_nothing_behind(fanout: Deployment) -> None:
    for facts, codes in ODD:
        preview, times = await both(fanout, facts)
        assert list(preview.times) == times, facts
        assert {each.code for each in preview.warnings} - {"clock_change"} == codes, facts
    await fanout.client.schedules.delete("nightly")
    await eventually(partial(nothing_left, fanout))
    for count in (0, 1_001):
        with pytest.raises(InvalidRequest, match=f"count {count} "):
            await fanout.client.schedules.preview(declared(), count)
    assert len((await fanout.client.schedules.preview(declared(cron="* * * * *"), 900)).times) == 900


async def both(fanout: Deployment, facts: dict[str, Any]) -> tuple[Preview, list[datetime]]:
    """Ten times as they are previewed and as the server tells them, with no tick between the two looks."""
    while True:
        preview = await fanout.client.schedules.preview(declared(**facts), 10)
        await changes(fanout, declared(**{**facts, "jitter": timedelta(0)}))
        times = list((await on_server(fanout)).info.next_action_times[:10])
        if not preview.times or preview.times[0] > datetime.now(UTC):
            return preview, times


async def nothing_left(fanout: Deployment) -> bool:
    """Whether no schedule is there that a preview made; the server's list is a little late."""
    return not any("preview" in name for name in await server_ids(fanout))


def clock_warnings(preview: Preview) -> list[str]:
    return [each.detail for each in preview.warnings if each.code == "clock_change"]


async def test_a_preview_tells_of_starts_that_a_clock_change_takes_away(fanout: Deployment) -> None:
    spring, autumn = (next_change("Europe/Berlin", forward) for forward in (True, False))
    at_night = await fanout.client.schedules.preview(declared(cron="30 2 * * *", **BERLIN))
    # On some days a second one is near enough to be told of.
    told, *_ = clock_warnings(at_night)
    day = f"{spring.before:%Y-%m-%d}"
    assert told == f"on {day} the clock is put forward from 02:00 to 03:00: no start at 02:30, so none on that day"
    told, *_ = clock_warnings(await fanout.client.schedules.preview(declared(cron="30 */2 * * *", **BERLIN)))
    assert told.endswith("no start at 02:30")
    often = clock_warnings(await fanout.client.schedules.preview(declared(cron="*/20 * * * *", **BERLIN)))
    # The server leaves starts out after the first that falls into the hour that comes twice.
    assert [told.partition(" at ")[0] for told in often[:1]] == [
        f"on {autumn.before:%Y-%m-%d} the clock is put back from 03:00 to 02:00: no start"
    ]
    # More times than the server tells at once.
    told, *_ = clock_warnings(await fanout.client.schedules.preview(declared(cron="0/15 * * * * * *", **BERLIN)))
    assert told.partition(" and ")[0].endswith(": no start at 02:00:30, 02:00:45, 02:01, 02:01:15, 02:01:30")
    for quiet in ({"cron": "30 2 * * *"}, {"cron": "0 12 * * *", **BERLIN}, {"interval": timedelta(hours=1), **BERLIN}):
        assert clock_warnings(await fanout.client.schedules.preview(declared(**quiet))) == []


HALF_AN_HOUR = [
    ("15 2 * * *", ["forward from 02:00 to 02:30: no start at 02:15, but at 02:45"]),
    ("15 1 * * *", ["back from 02:00 to 01:30: a start at 01:45 too"]),
    ("0,30 2 * * *", ["forward from 02:00 to 02:30: no start at 02:00"]),
    ("10 * * * *", ["back from 02:00 to 01:30: a start at 01:40 too"]),
    ("30 2 * * *", []),
    ("45 1 * * *", []),
]


async def test_a_clock_that_is_put_by_half_an_hour_moves_starts_and_adds_some(fanout: Deployment) -> None:
    for cron, expected in HALF_AN_HOUR:
        told = clock_warnings(
            await fanout.client.schedules.preview(declared(cron=cron, time_zone="Australia/Lord_Howe"))
        )
        assert {each.partition("the clock is put ")[2] for each in told} == {*expected}, cron


async def test_a_clock_that_is_put_back_at_midnight_shows_the_day_before_once_more(fanout: Deployment) -> None:
    told, *_ = clock_warnings(
        await fanout.client.schedules.preview(declared(cron="30 23 * * *", time_zone="America/Santiago"))
    )
    day = next_change("America/Santiago", forward=False).before - timedelta(days=1)
    assert told == f"on {day:%Y-%m-%d} the clock is put back from 00:00 to 23:00: two starts at 23:30"


NOW = datetime.now(UTC).replace(microsecond=0)
# Longer than from one summer time to the next.
HORIZON = timedelta(days=400)


def next_change(zone: str, forward: bool) -> ClockChange:
    return next(each for each in clock_changes(ZoneInfo(zone), NOW, NOW + HORIZON) if each.forward == forward)


@pytest.mark.parametrize(
    ("zone", "earlier", "later", "hours"),
    [
        ("Europe/Berlin", "02:00", "03:00", 1),
        ("America/New_York", "02:00", "03:00", 1),
        ("Australia/Lord_Howe", "02:00", "02:30", 0.5),
        ("Pacific/Chatham", "02:45", "03:45", 1),
    ],
)
def test_clock_changes_are_found_to_the_second(zone: str, earlier: str, later: str, hours: float) -> None:
    change = next_change(zone, forward=True)
    assert (f"{change.earlier:%H:%M}", f"{change.later:%H:%M}") == (earlier, later)
    assert change.after - change.before == timedelta(hours=hours)
    assert change.at.astimezone(change.zone).replace(tzinfo=None) == change.after


def test_a_zone_without_clock_changes_has_none() -> None:
    for zone in ("UTC", "Asia/Tokyo"):
        assert list(clock_changes(ZoneInfo(zone), NOW, NOW + timedelta(days=800))) == []


async def test_the_command_line_previews_a_file_and_applies_nothing(fanout: Deployment, tmp_path: Path) -> None:
    schedule = "handler = 'test.echo'\ntime_zone = 'Asia/Tokyo'\nitems = []\n"
    text = f"[schedules.a]\ncron = '0 0 30 2 *'\n{schedule}[schedules.b]\ncron = '0 9 * * *'\n{schedule}"
    file = write(tmp_path, text)
    never, daily = lines(fanout.run("schedule", "preview", file, "--count", "3", "--json"))
    assert (never["schedule_id"], never["times"], [each["code"] for each in never["warnings"]]) == ("a", [], ["never"])
    assert (daily["time_zone"], len(daily["times"]), daily["warnings"]) == ("Asia/Tokyo", 3, [])
    for each in daily["times"]:
        assert (each["local"][10:], each["utc"][10:]) == ("T09:00:00+09:00", "T00:00:00Z"), json.dumps(each)
    shown = (await asyncio.to_thread(fanout.run, "schedule", "preview", file)).stdout
    assert ("warning: no such time comes" in shown, shown.count("09:00:00 +0900")) == (True, 5)

    async def nothing_is_applied() -> bool:
        return not await server_ids(fanout)

    await eventually(nothing_is_applied)
