"""The live view of one batch on a terminal."""

from collections import deque
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.text import Text

from fanout.cli.output import printable
from fanout.cli.views import counts, described, error_text, workers_text
from fanout.client import Status

FAILURES_SHOWN = 5


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
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
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeLeft(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, status: Status, failures: list[dict[str, Any]], note: str | None = None) -> None:
        """Shows this status, and these failures below the earlier ones."""
        self._failures.extend(failures)
        total = max(1, status.total)
        self._progress.update(
            self._task, description=status.handler, total=total, completed=status.settled if status.total else 1
        )
        state = Text.assemble(described(status.status), f"  {counts(status)}")
        waiting = workers_text(status) if status.workers == 0 else None
        lines = [state, waiting, None if note is None else Text(note, style="dim")]
        shown = [line for line in lines if line is not None]
        self._live.update(Group(self._progress, *shown, *map(_failure, self._failures)))


def _failure(event: dict[str, Any]) -> Text:
    data = event["data"]
    text = Text("  failed  ", style="dim")
    text.append(printable(data.get("item_key") or str(data.get("seq")), 40), style="default")
    text.append("  ")
    text.append_text(error_text(data.get("error") or {}))
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
