"""The live view of one batch: a board on a terminal, else plain lines."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.text import Text

from fanout.cli.output import printable
from fanout.cli.views import counts, described, error_text, progress_line, workers_text
from fanout.client import Status

FAILURES_SHOWN = 5
LINE_SECONDS = 5.0
"""How often plain lines tell of progress, while the batch's state stays the same."""


class Lines:
    """Progress in plain lines, none of them twice."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.seen = 0
        """The newest event that was read."""
        self.say = say
        self._said = ""
        self._next_time = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing has to be put away."""

    def update(self, status: Status, failures: list[dict[str, Any]]) -> None:
        """Says how far the batch is, if that is news and the last line is old enough."""
        line = progress_line(status)
        state = line.partition(":")[0]
        if line != self._said and (not self._said.startswith(state) or time.monotonic() >= self._next_time):
            self.say(line)
            self._said, self._next_time = line, time.monotonic() + LINE_SECONDS


class _Rate(ProgressColumn):
    """Items that were worked off a second; those that are cancelled are no work."""

    def render(self, task: Task) -> Text:
        speed = task.fields["worked"].speed
        return Text("" if speed is None else f"{speed:,.1f}/s", style="dim")


class Board:
    """A bar with rate and time left, the counts below it, and the newest failures; it stays when the block ends."""

    def __init__(self, console: Console) -> None:
        self.seen = 0
        """The newest event that was read."""
        self._console = console
        self._failures: deque[dict[str, Any]] = deque(maxlen=FAILURES_SHOWN)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None, complete_style="blue", finished_style="green"),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeLeft(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
        )
        self._worked = self._progress.add_task("", total=None, visible=False)
        self._task = self._progress.add_task("", total=None, worked=self._progress.tasks[self._worked])
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line above the board."""
        self._live.console.print(Text(text, style="bold yellow"))

    def update(self, status: Status, failures: list[dict[str, Any]]) -> None:
        """Shows this status, and these failures below the earlier ones."""
        self._failures.extend(failures)
        total = max(1, status.total)
        self._progress.update(self._worked, completed=status.completed + status.failed)
        self._progress.update(
            self._task, description=status.handler, total=total, completed=status.settled if status.total else 1
        )
        state = Text.assemble(described(status.status), f"  {counts(status)}")
        waiting = workers_text(status) if status.workers == 0 else None
        shown = [state] if waiting is None else [state, waiting]
        self._live.update(Group(self._progress, *shown, *map(_failure, self._failures)))


def progress_view(console: Console, say: Callable[[str], None]) -> Board | Lines:
    """The board where `console` is a terminal, else lines by `say`."""
    return Board(console) if console.is_terminal else Lines(say)


def _failure(event: dict[str, Any]) -> Text:
    data = event["data"]
    text = Text("  failed  ", style="dim")
    text.append(printable(data.get("item_key") or str(data.get("seq")), 40), style="default")
    text.append("  ")
    text.append_text(error_text(data.get("error") or {}))
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
