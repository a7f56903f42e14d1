"""Schedules in a file, and what is said of those that are wrong."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fanout import Item, Schedule
from fanout.client import read_schedules
from fanout.errors import InvalidRequest, InvalidSchedules
from tests.support import ROOT

GOOD = """
[schedules.nightly]
handler = "test.echo"
cron = "30 2 * * *"
time_zone = "Europe/Berlin"
jitter = "5m"
overlap = "buffer_one"
catch_up = "1h"
items = [1, 2]
"""


def test_the_example_is_read() -> None:
    found = {each.id: each for each in read_schedules(ROOT / "examples" / "schedules.toml")}
    assert [*found] == ["papers-of-the-night", "failed-items", "ping"]
    papers, failed, ping = found.values()
    assert (papers.cron, papers.time_zone, papers.key) == ("30 3 * * MON-FRI", "Europe/Berlin", "papers/{date}")
    assert (failed.interval, failed.dedup, failed.catch_up) == (timedelta(minutes=15), "open", timedelta(minutes=10))
    assert ping.request["items"] == [{"key": "0", "payload": ping.payload}]
    assert (ping.request["schedule"]["waits"], papers.request["schedule"]["waits"]) == (False, True)


WRONG: list[tuple[str, str, str]] = [
    ("handler", "handler = 'No Name'", "a handler's name matches"),
    ("handler", "", "it is missing"),
    ("handler", "handler = 5", "valid string"),
    ("cron", "cron = '61 * * * *'", "the minute 61 is not between 0 and 59"),
    ("cron and interval", "cron = '@daily'\ninterval = '1h'", "exactly one of cron and interval"),
    ("cron", "", "exactly one of cron and interval"),
    ("interval", "interval = '0s'", "at least 1s"),
    ("interval", "interval = 90", "timedelta"),
    ("interval", "interval = 'often'", "as 90s, 10m, 2h or 7d"),
    ("time_zone", "time_zone = 'Europe/Atlantis'", "no name of the IANA database"),
    ("time_zone", "time_zone = '../UTC'", "no name of the IANA database"),
    *(("time_zone", f"time_zone = '{name}'", "no name of the IANA") for name in ("", "Europe", "localtime", "/etc")),
    ("jitter", "jitter = '400d'", "at most 365d"),
    ("overlap", "overlap = 'wait'", "'skip', 'buffer_one'"),
    ("catch_up", "catch_up = '9s'", "at least 10s"),
    ("items and sql", "items = []\nsql = 'select 1'", "exactly one of items, payload, sql, glob"),
    ("items", "", "exactly one of items, payload, sql, glob"),
    ("items", "items = [{key = 'a', payload = 1}, {key = 'a', payload = 2}]", "'a' stands at positions 0 and 1"),
    ("items", "items = [nan]", "not JSON"),
    ("payload", f"payload = '{'x' * 1_000_001}'", "the limit is 1000000"),
    ("sql", "sql = ''", "1 to 100,000 characters"),
    ("sql", r'sql = "select 1 -- \u0000"', "U+0000"),
    ("glob", "glob = 'papers/*.pdf'", "it starts with /"),
    ("glob", r'glob = "/in/\u0000/*"', "U+0000"),
    ("key", "key = '{when}'", "it can name {schedule}, {time}, {local}, {date}"),
    ("key", "key = '{time:%H}'", "it can name"),
    ("key", "key = '{'", "'{'"),
    ("key", f"key = '{'x' * 140}{{time}}'", "has 160 bytes; the limit is 150 bytes"),
    ("title", "title = ''", "1 to 200 characters"),
    ("title", r'title = "a\nb"', "one line without control characters"),
    ("range_size", "range_size = 5001", "between 1 and 5,000"),
    ("max_failures", "max_failures = '120%'", "max_failures"),
    ("on_budget", "on_budget = 'stop'\nmax_failures = 1", "'pause' or 'fail'"),
    ("on_budget", "on_budget = 'fail'", "max_failures, which it is about, is not given"),
    ("deadline", "deadline = '0s'", "at least 1s"),
    ("on_close", "on_close = 'No+Name'", "a handler's name matches"),
    ("dedup", "dedup = 'sometimes'", "forever, open, success"),
    ("dedup", "dedup = '0s'", "above 0"),
    ("paused", "paused = 'yes'", "valid boolean"),
    ("note", f"note = '{'x' * 501}'", "1 to 500 characters"),
    ("corn", "corn = '@daily'", "there is no such field; there are handler, cron"),
    ("id", "id = 'other'", "the name of the table [schedules.wrong] is the id"),
]


def faults_of(folder: Path, text: str) -> InvalidSchedules:
    file = folder / "schedules.toml"
    file.write_text(text)
    with pytest.raises(InvalidSchedules) as raised:
        read_schedules(file)
    return raised.value


def test_every_wrong_field_is_named_with_file_schedule_and_reason(tmp_path: Path) -> None:
    for field, lines, said in WRONG:
        error = faults_of(tmp_path, f"{GOOD}\n[schedules.wrong]\n{lines}\n")
        matching = [reason for schedule, name, reason in error.faults if (schedule, name) == ("wrong", field)]
        assert any(said in reason for reason in matching), (lines[:60], error.faults)
        assert str(tmp_path / "schedules.toml") in str(error)


def test_all_faults_of_all_schedules_are_told_at_once(tmp_path: Path) -> None:
    bad = "[schedules.one]\nhandler = 'X'\ncatch_up = '1s'\n[schedules.'two words']\nhandler = 'a'\n[other]\n"
    error = faults_of(tmp_path, GOOD + bad)
    assert {(schedule, field) for schedule, field, _ in error.faults} == {
        (None, "other"),
        *(("one", field) for field in ("handler", "catch_up", "cron", "items")),
        *(("two words", field) for field in ("id", "cron", "items")),
    }
    assert len(str(error).splitlines()) == len(error.faults) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[schedules.a]\n[schedules.a]\n", "it is not TOML: Cannot declare"),
        ("nonsense", "it is not TOML"),
        ("schedules = 5", "it is a table for each schedule"),
        ("[schedules]\na = 5", "it is a table: [schedules.a]"),
        (r'["\u001b[2J"]', r"'\x1b[2J': there is no such table"),
        (r'[schedules."\u001b[2J"]', r"'\x1b[2J': handler: it is missing"),
        (r'schedules."\u001b[2J" = 5', r"it is a table: [schedules.'\x1b[2J']"),
        (r"[schedules.a]" "\n" r'"\u001b[2J" = 5', r"a: '\x1b[2J': there is no such field"),
    ],
)
def test_a_file_of_another_form_is_told_apart(tmp_path: Path, text: str, said: str) -> None:
    told = str(faults_of(tmp_path, text))
    assert said in told
    assert "\x1b" not in told


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"missing\.toml cannot be read"):
        read_schedules(tmp_path / "missing.toml")
    (tmp_path / "latin").write_bytes("note = 'é'".encode("latin-1"))
    with pytest.raises(InvalidSchedules, match="not UTF-8"):
        read_schedules(tmp_path / "latin")


@pytest.mark.parametrize("length", [100, 101, 250])
def test_an_id_leaves_room_for_what_a_server_appends(length: int) -> None:
    facts: dict[str, Any] = {"handler": "test.echo", "cron": "@daily", "items": [], "key": "k"}
    if length == 100:
        run = f"{'x' * 12}-schedule/{Schedule(id='s' * length, **facts).id}-2026-11-29T11:41:35Z"
        assert len(run.encode()) < 255
    else:
        with pytest.raises(ValidationError, match="an id matches"):
            Schedule(id="s" * length, **facts)


def test_code_declares_what_a_file_does() -> None:
    made = Schedule(
        id="s",
        handler="h",
        interval=timedelta(hours=2),
        items=[Item({"at": timedelta(1)}, "a")],
        dedup=timedelta(days=7),
    )
    assert made.request == {
        "schedule": {"id": "s", "time_zone": "UTC", "waits": True},
        "handler": "h",
        "key": "{schedule}/{time}",
        "items": [{"key": "a", "payload": {"at": "P1D"}}],
        "dedup": "604800s",
    }
    nothing = Schedule(id="s", handler="h", cron=" @daily\n", payload=None)
    assert (nothing.cron, nothing.request["items"]) == ("@daily", [{"key": "0", "payload": None}])
    unnamed = Schedule(id="s", handler="h", cron="@daily", items=[Item(1), Item({"key": "k", "payload": 2})])
    assert unnamed.request["items"] == [{"key": "0", "payload": 1}, {"key": "1", "payload": {"key": "k", "payload": 2}}]
    short = timedelta(milliseconds=1500)
    for wrong in (
        {"interval": short},
        {"cron": "@daily", "dedup": short},
        {"interval": timedelta(hours=1), "cron": "@daily"},
    ):
        with pytest.raises(ValidationError):
            Schedule(id="s", handler="h", items=[], **wrong)
