"""The documentation, compared with the code: what it names exists, and what exists is named."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
import typer

import worker
from fanout.cli import running
from fanout.cli.app import COMMANDS, GROUPS, build
from fanout.cli.options import GlobalOptions
from fanout.client import Reason, Schedule
from fanout.client.findings import Code, Severity
from fanout.client.firing import KEY_NAMES
from fanout.client.schedule import Overlap
from fanout.errors import FanoutError, PermanentError, RetryLater
from fanout.handlers import Ending, Handler, Outcome, handler, judge
from fanout.handlers.calls import call_blocking
from fanout.handlers.context import Context
from fanout.handlers.definition import MARK
from fanout.handlers.outcomes import LOST_LIMIT, THROTTLE_LIMIT, describe
from fanout.settings import PREFIX, Settings
from fanout.states import BATCH_MOVES, ITEM_MOVES
from fanout.store import MIGRATIONS, ClaimedItem, Verdict
from tests.support import ROOT, Deployment

DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DECISIONS.glob("*.md")),
]
README = PAGES[0].read_text()
ERRORS = (DOCS / "errors.md").read_text()
CLI = (DOCS / "cli.md").read_text()
# The click that typer brings with it has no public name.
APP: Any = typer.main.get_command(build())

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def command(name: str) -> Any:
    """The command of that name, which may have two words."""
    found = APP
    for word in name.split():
        found = found.commands[word]
    return found


def section(text: str, heading: str) -> str:
    """What stands under a heading, down to the next one of any level."""
    return text.partition(f"{heading}\n")[2].partition("\n#")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of the tables in `text`, header lines included."""
    lines = (line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def words(cell: str) -> set[str]:
    return set(CODE.findall(cell))


def first_words(text: str) -> set[str]:
    """What stands as code in the first cells of the tables in `text`."""
    return {word for row in rows(text) for word in words(row[0])}


def code_lines(page: Path) -> Iterator[str]:
    """Every line of the shell blocks, and every piece of code in the text."""
    text = page.read_text()
    for language, block in FENCE.findall(text):
        if language == "sh":
            yield from block.splitlines()
    yield from CODE.findall(FENCE.sub("", text))


def test_the_readme_is_short_and_shows_the_two_commands() -> None:
    assert len(README.splitlines()) < 150
    assert {"make demo", "make test"} <= {line.partition("#")[0].strip() for line in code_lines(PAGES[0])}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {found for page in PAGES for line in code_lines(page) for found in re.findall(r"^make ([a-z]+)", line)}
    assert {"demo", "test", "install", "check"} <= named <= targets


def commands() -> Iterator[tuple[str, str]]:
    """Every call of the command line that a page shows, with the name of the page."""
    for page in PAGES:
        for line in code_lines(page):
            if call := re.search(r"\bstarter\.py ([a-z][^>|…]+)", line):
                yield page.name, call[1]


@pytest.mark.parametrize(("page", "call"), sorted(set(commands())))
def test_every_command_that_is_shown_is_understood(page: str, call: str) -> None:
    name, *arguments = shlex.split(call, comments=True)
    if name in GROUPS:
        name, *arguments = (f"{name} {arguments[0]}", *arguments[1:])
    if arguments and not (name == "verify" and arguments == ["[BATCH]"]):
        command(name).make_context(name, arguments)
    assert name in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    heading = next(line for line in CLI.splitlines() if re.match(rf"### `{name}\b", line))
    under = section(CLI, heading)
    options = {option for parameter in command(name).params for option in parameter.opts if option[:2] == "--"}
    everywhere = {option for parameter in APP.params for option in parameter.opts if option[:2] == "--"}
    assert len(everywhere - {"--help"}) == len(GlobalOptions.__dataclass_fields__)
    assert {option for option in options - everywhere if f"`{option}" not in under} == set()
    shown = {found.partition(" ")[0] for found in first_words(section(CLI, "## Options of every command"))}
    assert shown == everywhere - {"--help"}


def test_every_option_of_the_worker_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        worker.parse(["--help"])
    options = set(re.findall(r"(--[a-z-]+)", capsys.readouterr().out)) - {"--help"}
    assert {found.partition(" ")[0] for found in first_words(section(CLI, "## `worker.py`"))} == options


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {row[0].strip("`"): row[1] for row in rows((DOCS / "settings.md").read_text())[1:]}
    assert list(documented) == [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    for name, field in Settings.model_fields.items():
        shown = documented[f"{PREFIX}{name.upper()}"]
        assert shown == f"`{field.default}`" or (not field.default and "`" not in shown), name


def test_every_field_of_a_schedule_its_keys_and_warnings_are_documented() -> None:
    text = (DOCS / "schedules.md").read_text()
    assert first_words(section(text, "## Fields")) == Schedule.model_fields.keys() - {"id"}
    assert first_words(section(text, "## Keys")) == {f"{{{name}}}" for name in KEY_NAMES}
    codes = source_codes(r'Warned\(\s*"(\w+)"', "fanout/client/schedule_warnings.py")
    assert first_words(section(text, "## Cron expressions")) == codes
    for overlap in get_args(Overlap):
        assert f"`{overlap}`" in text


def test_states_and_their_moves_are_documented() -> None:
    states = section((DOCS / "how-it-works.md").read_text(), "## States")
    items, _, batches = states.partition("\nA batch:\n")
    for text, moves in ((items, ITEM_MOVES), (batches, BATCH_MOVES)):
        documented = {row[0].strip("`"): words(row[2]) for row in rows(text)[1:]}
        assert documented == {str(state): {str(other) for other in others} for state, others in moves.items()}


def test_every_table_is_documented() -> None:
    created = {name for each in MIGRATIONS for name in re.findall(r"create table fanout\.(\w+)", each.sql)}
    assert first_words(section((DOCS / "how-it-works.md").read_text(), "## What each table holds")) == created


class StatusError(Exception):
    """As HTTP clients raise it."""

    def __init__(self, status_code: int, retry_after: str | None = None) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code
        self.headers = {} if retry_after is None else {"retry-after": retry_after}


@dataclass(frozen=True)
class Fact:
    """What a handler does, the row of the table that tells of it, and that row's class."""

    row: str
    ending: Ending
    does: BaseException | object


FACTS = [
    Fact("returns a value", Ending.COMPLETED, "fine"),
    Fact("returns a value", Ending.PERMANENT, float("nan")),
    Fact("raises `RetryLater(after=…)`", Ending.THROTTLED, RetryLater(after=timedelta(1))),
    Fact("raises a type in its `transient=(…)`", Ending.TRANSIENT, LookupError()),
    Fact("raises a type in its `permanent=(…)`", Ending.PERMANENT, ArithmeticError()),
    Fact("raises `PermanentError(code=…)`", Ending.PERMANENT, PermanentError()),
    Fact("raises an exception with HTTP status 429 or 503", Ending.THROTTLED, StatusError(503, "7")),
    Fact("raises an exception with HTTP status 429 or 503", Ending.THROTTLED, StatusError(429, "7")),
    *(
        Fact("raises an exception with HTTP status 408", Ending.TRANSIENT, StatusError(status))
        for status in (408, 425, 429, 500, 503, 599)
    ),
    Fact("raises an exception with any other HTTP status 4xx", Ending.PERMANENT, StatusError(404)),
    Fact("raises anything else", Ending.TRANSIENT, ValueError()),
    Fact("raises anything else", Ending.TRANSIENT, SystemExit(404)),
    Fact("raises anything else", Ending.TRANSIENT, ExceptionGroup("of", [PermanentError()])),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact.row} {fact.does!r}"[:70])
def test_what_a_handler_does_has_the_documented_end(fact: Fact) -> None:
    outcome = outcome_of(fact.does)
    [row] = [row for row in rows(ERRORS) if row[0].startswith(fact.row)]
    assert outcome.ending is fact.ending
    assert row[1] == fact.ending.value or "fails it at once" in row[2]
    written, settles = judge(made(fact.does), claimed(), outcome)
    if settles and isinstance(written, Verdict):
        assert written.error is not None
        assert written.error["code"] in words(row[2])


def made(does: object) -> Handler:
    """A handler with one attempt that raises or returns `does`."""

    @handler("test.docs", max_attempts=1, transient=(LookupError,), permanent=(ArithmeticError,))
    def function(payload: int) -> object:
        if isinstance(does, BaseException):
            raise does
        return does

    found: Handler = getattr(function, MARK)
    return found


def claimed(crashes: int = 0, throttles: int = 0) -> ClaimedItem:
    return ClaimedItem(0, "0", "1", uuid4(), 0, crashes, throttles)


def outcome_of(does: object, payload: str = "1") -> Outcome:
    context = Context(uuid4(), "test.docs", "k", "0", 0, attempt=1, epoch=1)
    return call_blocking(made(does), payload, context, 1_000)


def code_of(item: ClaimedItem, outcome: Outcome) -> str:
    """The code of an item that this outcome settles as failed."""
    written, settles = judge(made(None), item, outcome)
    assert settles
    assert isinstance(written, Verdict)
    assert written.error is not None
    return str(written.error["code"])


def test_the_limits_of_the_table_are_those_of_the_code() -> None:
    timeout = Outcome(Ending.TRANSIENT, error=describe(TimeoutError(), "timeout", 1))
    later = outcome_of(RetryLater(after=timedelta(1)))
    assert code_of(claimed(), timeout) == "timeout"
    assert code_of(claimed(), outcome_of(None, payload='"x"')) == "invalid_payload"
    assert code_of(claimed(throttles=THROTTLE_LIMIT), later) == "throttled_too_long"
    assert code_of(claimed(crashes=LOST_LIMIT - 1), Outcome(Ending.LOST)) == "lost_too_often"
    assert f"after {THROTTLE_LIMIT} such waits" in ERRORS
    assert f"at {LOST_LIMIT} it fails" in ERRORS


def test_every_field_of_an_items_error_is_documented() -> None:
    assert first_words(section(ERRORS, "## The error object of an item")) == {*describe(ValueError(), "x", 1)}


def source_codes(pattern: str, *globs: str) -> set[str]:
    files = (file for each in globs for file in ROOT.glob(each))
    return {code for file in files for code in re.findall(pattern, file.read_text())}


def test_every_code_of_an_item_is_documented() -> None:
    documented = first_words(section(ERRORS, "### Codes"))
    # `retries_exhausted` is the one that stands elsewhere: FACTS has it.
    own = r"(?:describe\([^\n]*?, |\"code\": |_CODE = )\"([a-z_]+)\""
    codes = source_codes(own, "fanout/handlers/*.py", "activities/*.py") | {"retries_exhausted"}
    codes |= source_codes(r"'code', '([a-z_]+)'", "fanout/store/migrations/*.sql")
    codes |= source_codes(r'refuse\("([a-z_]+)"', "examples/documents/*.py")
    codes |= source_codes(r'code="([a-z_]+)"', "fanout/handlers/http_request.py")
    assert documented == {*codes, "document.extract", "http.request"}


def subclasses(base: type[FanoutError]) -> Iterator[type[FanoutError]]:
    yield base
    for each in base.__subclasses__():
        yield from subclasses(each)


def test_every_error_of_a_call_is_documented() -> None:
    table = rows(section(ERRORS, "### Codes of errors that a call raises"))[1:]
    classes = {each for each in subclasses(FanoutError) if each.__module__.startswith("fanout.")}
    assert {(row[0].strip("`"), row[1].strip("`")) for row in table} == {(e.code, e.__name__) for e in classes}


def test_every_reason_and_every_finding_is_documented() -> None:
    operations = (DOCS / "operations.md").read_text()
    assert first_words(section(operations, "## Why")) == {*map(str, Reason)}
    table = rows(section(operations, "## Doctor"))[1:]
    assert {code for row in table for code in words(row[0])} == {*map(str, Code)}
    assert {word for row in table for word in re.findall(r"\w+", row[1])} - {"or"} == {*map(str, Severity)}


def test_every_exit_code_is_documented() -> None:
    starter, _, of_worker = section(ERRORS, "## Exit codes").partition("| `worker.py`")
    names = ("DONE", "NOT_COMPLETED", "WRONG_CALL", "UNREACHABLE", "FAULT", "INTERRUPTED")
    assert first_words(starter) == {str(getattr(running, name)) for name in names} | {"starter.py", "fanout"}
    told = re.findall(r"\b(\d) ", (worker.main.__doc__ or "").partition("codes are:")[2])
    assert first_words(of_worker) == set(told)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not fragment or fragment in map(anchor, HEADING.findall(target.read_text())), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_folder_of_the_machine_it_was_written_on(page: Path) -> None:
    assert re.findall(r"/(?:work|tmp|root|home)/", page.read_text()) == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    files = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [int(file.name[:4]) for file in files] == [*range(1, len(files) + 1)]
    listed = rows((DECISIONS / "README.md").read_text())[1:]
    titles = [file.read_text().partition("\n")[0].removeprefix(f"# {file.name[:4]}: ") for file in files]
    assert listed == [[f"[{file.name[:4]}]({file.name})", title] for file, title in zip(files, titles, strict=True)]
    for file in files:
        headings = ["Context", "Decision", "Rejected", "Consequences"]
        assert re.findall(r"^## (.+)$", file.read_text(), re.MULTILINE) == headings, file.name


def test_the_readme_shows_the_example_as_it_is() -> None:
    [block] = [block for language, block in FENCE.findall(README) if language == "python"]
    assert block == (ROOT / "examples" / "embedding.py").read_text()


async def test_the_example_works(fanout: Deployment) -> None:
    await fanout.start_worker(handlers="examples.embedding")
    done = embed(fanout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["started completed_with_failures 99 1", "R-100 credit_note"]
    assert embed(fanout).stdout.startswith("already_done ")


def embed(fanout: Deployment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "examples/embedding.py"]
    return subprocess.run(
        command, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, timeout=120, check=False
    )
