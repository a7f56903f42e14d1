"""What processes log: the fields that every line carries, and lines that nobody's text can forge."""

import json
import logging
import sys
from typing import Any

import pytest

from fanout.logs import JsonLines, LogSetup, TextLines, about
from tests.handlers.talkative import FORGED
from tests.support import Deployment, WorkerProcess


def record(message: object, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("fanout.test", logging.WARNING, "", 0, message, arguments, None)
    made.__dict__.update(fields)
    return made


class Unshowable:
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
@pytest.mark.parametrize("forged", [FORGED, "\r\n", "\x85", "\ud800", "\u202e", "\U000e0001", "\0"])
def test_no_text_makes_a_second_line(formatter: logging.Formatter, forged: str) -> None:
    line = formatter.format(record("%s", forged, item_key=forged, other=forged))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("forged", [FORGED, "\r\n", "\x85", "\u202e", "\U000e0001", "\0", 'a"\\ü新'])
def test_json_gives_back_what_was_logged(forged: str) -> None:
    line = json.loads(JsonLines().format(record("%s", forged, item_key=forged, pages=3)))
    assert (line["message"], line["item_key"], line["pages"]) == (forged, forged, 3)
    assert (line["level"], line["logger"]) == ("warning", "fanout.test")


def test_text_shows_the_fields_behind_the_message() -> None:
    fields = {"batch_id": "b", "item_key": "a key]", "seq": 3, "pages": 7}
    assert (
        TextLines()
        .format(record("read %d pages", 7, **fields))
        .endswith(' WARNING fanout.test read 7 pages [batch_id=b item_key="a key]" seq=3]')
    )


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_what_cannot_be_shown_costs_no_line(formatter: logging.Formatter) -> None:
    assert "arguments do not fit" in formatter.format(record("%d pages", "no number"))
    assert "ZeroDivisionError" in formatter.format(record("fine", item_key=Unshowable()))
    assert formatter.format(record("%s", Unshowable())).isprintable()


def test_a_field_that_json_cannot_hold_is_shown_as_text() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for field in (float("nan"), {"score": float("inf")}, {(1, 2): 3}, circle, nested):
        line = json.loads(JsonLines().format(record("fine", field=field, pages=3)), parse_constant=pytest.fail)
        assert (line["message"], type(line["field"]), line["pages"]) == ("fine", str, 3)


def test_what_a_process_has_to_say_is_said_at_every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "fanout")
    caplog.handler.setLevel(logging.NOTSET)
    LogSetup("error", "json").say("worker.py: FANOUT_HANDLERS: no such module", "and more")
    assert caplog.messages == ["worker.py: FANOUT_HANDLERS: no such module", "and more"]


def test_a_traceback_cannot_forge_lines_either() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        made = logging.LogRecord("fanout.test", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    first, *others = TextLines().format(made).split("\n")
    assert first.endswith("failed")
    assert all(line.startswith("  | ") and line.isprintable() for line in others)
    assert FORGED in json.loads(JsonLines().format(made))["traceback"]


def lines(worker: WorkerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.log.read_text().splitlines()]


async def test_every_line_of_a_handler_carries_its_item_in_every_mode(fanout: Deployment) -> None:
    # A child process that is still starting when its worker leaves has words of its own.
    worker = await fanout.start_worker(
        "--log-format", "json", "--concurrency", "1", handlers="tests.handlers.talkative"
    )
    expected = {}
    for name in ("test.talk", "test.talk-thread", "test.talk-process"):
        batch = await fanout.client.submit(name, [FORGED], key="k")
        assert (await batch.wait()).status == "completed"
        facts = {"handler": name, "key": "k", "item_key": "0", "seq": 0, "attempt": 1}
        expected[name] = about(batch.batch_id, **facts)
    assert worker.stop() == 0
    logged = lines(worker)
    for name, fields in expected.items():
        about_it = [line for line in logged if line.get("batch_id") == fields["batch_id"] and line.get("seq") == 0]
        assert [line["message"] for line in about_it] == [FORGED, "a library's own line"], name
        assert all(fields.items() <= line.items() for line in about_it)
        assert about_it[0]["pages"] == 3
    assert any(line["message"].endswith("is ready: http.request, " + ", ".join(sorted(expected))) for line in logged)
