"""The papers of the demo: where they are, what becomes an item, and which ones cannot succeed."""

from pathlib import Path
from typing import NamedTuple

PAPERS = Path(__file__).resolve().parent / "papers"
FAILS_TWICE = "flaky-"
EXPECTED_FAILURES = {
    "board-minutes-locked.pdf": "encrypted",
    "reading-room-survey-cut.pdf": "truncated",
    "field-notes-blank.txt": "empty",
    "ferry-timetable-saved.pdf": "not_a_document",
}


class DemoItem(NamedTuple):
    """One item of the demo's batch; the key is the file's name."""

    key: str
    payload: dict[str, str | int]


def demo_items(folder: Path = PAPERS) -> list[DemoItem]:
    """One item for each paper, in the order of their names."""
    return [DemoItem(path.name, _payload(path)) for path in sorted(folder.iterdir())]


def _payload(path: Path) -> dict[str, str | int]:
    payload: dict[str, str | int] = {"path": str(path)}
    return {**payload, "fail_first": 2} if path.name.startswith(FAILS_TWICE) else payload
