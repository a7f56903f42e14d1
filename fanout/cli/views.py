"""What people see: calm, aligned, and with words instead of names of states."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fanout.cli.output import printable, to_json
from fanout.client import Duplicate, Status, SubmitOutcome
from fanout.states import BatchStatus, ItemStatus
from fanout.store import ItemRow, ResultRow, Violation, WorkerRow

STATUS_STYLES: dict[str, str] = {
    BatchStatus.PENDING: "cyan",
    BatchStatus.PROCESSING: "blue",
    BatchStatus.PAUSED: "yellow",
    BatchStatus.CANCELLING: "yellow",
    BatchStatus.COMPLETED: "green",
    BatchStatus.COMPLETED_WITH_FAILURES: "yellow",
    BatchStatus.FAILED: "red",
    BatchStatus.CANCELLED: "magenta",
}
_OUTCOMES = {
    SubmitOutcome.STARTED: "started",
    SubmitOutcome.JOINED: "joined a batch that runs already",
    SubmitOutcome.ALREADY_DONE: "done already, nothing runs again",
    "dry_run": "checked, nothing stored",
}
_BAR_COLUMNS = 30


def described(status: str) -> Text:
    """A state in plain words and its colour."""
    return Text(status.replace("_", " "), style=STATUS_STYLES.get(status, ""))


def counts(status: Status) -> str:
    """How many items stand where; states without items are left out."""
    found = ((state, getattr(status, state)) for state in map(str, ItemStatus))
    return ", ".join(f"{count:,} {state}" for state, count in found if count) or "no items"


def progress_line(status: Status) -> str:
    """One line of progress."""
    waiting = f"; no worker knows {status.handler}" if status.workers == 0 and not status.closed else ""
    return f"{status.status.replace('_', ' ')}: {status.settled:,} of {status.total:,} ({counts(status)}){waiting}"


def facts(rows: Iterable[tuple[str, RenderableType | None]]) -> Table:
    """Names on the left, values on the right; those without a value are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            table.add_row(name, value)
    return table


def listing(*columns: str) -> Table:
    """A table of many things."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def status_view(status: Status, recent: Sequence[Duplicate] = ()) -> Table:
    """One batch, and the newest of the starts that joined it."""
    return facts(
        [
            ("batch", Text(str(status.batch_id), style="bold")),
            ("key", Text(f"{status.handler}/{printable(status.key)}")),
            ("title", None if status.title is None else Text(printable(status.title))),
            ("status", described(status.status)),
            ("reason", None if status.reason is None else Text(printable(status.reason))),
            ("", _bar(status)),
            ("items", Text(f"{status.total:,}: {counts(status)}" if status.total else "none")),
            ("created", when(status.created_at)),
            ("started", when(status.started_at)),
            ("deadline", when(status.deadline_at)),
            ("breaker", _breaker(status)),
            ("next probe", None if status.breaker is None else when(status.breaker.until)),
            ("may fail", None if status.max_failures is None else Text(str(status.max_failures))),
            ("closed", _closed(status)),
            ("purged", _purged(status)),
            ("other starts", _duplicates(status)),
            *duplicate_rows(status.duplicates, recent),
            ("workers", workers_text(status)),
        ]
    )


def _breaker(status: Status) -> Text | None:
    return None if status.breaker is None else Text(f"open: {printable(status.breaker.error_type)}", style="red")


def _purged(status: Status) -> Text | None:
    if status.purged_at is None:
        return None
    return Text(f"{when(status.purged_at)}: its items and results are gone", style="yellow")


def _duplicates(status: Status) -> Text | None:
    if not status.duplicates:
        return None
    return Text(f"{status.duplicates:,} found this batch under their key, the last from {status.duplicate_origin}")


def duplicate_rows(total: int, recent: Sequence[Duplicate]) -> Iterable[tuple[str, Text]]:
    """Starts that joined a batch, a line each, and how many more there are."""
    for each in recent:
        yield "", Text(f"{when(each.at)}  from {each.origin}, {each.outcome.replace('_', ' ')}")
    if recent and total > len(recent):
        yield "", Text(f"and {total - len(recent):,} more", style="dim")


def _bar(status: Status) -> Table:
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=max(1, status.total), completed=status.settled if status.total else 1, width=_BAR_COLUMNS),
        f"{status.percent} %",
    )
    return bar


def _closed(status: Status) -> Text | None:
    if status.closed_at is None:
        return None
    took = elapsed(status.closed_at - status.created_at)
    return Text(f"{when(status.closed_at)}, after {took}")


def workers_text(status: Status) -> Text | None:
    """Who works on an open batch."""
    if status.closed:
        return None
    if status.workers == 0:
        return Text(f"none: it waits for a worker that knows {status.handler}", style="yellow")
    return Text(f"{status.workers} that know {status.handler}" if status.workers > 1 else f"1 knows {status.handler}")


def list_view(statuses: Iterable[Status]) -> Table:
    """Many batches, two lines each, so that an id stands whole on a terminal of 80 columns."""
    table = listing("batch", "status", "items", "failed")
    for column in (2, 3):
        table.columns[column].justify = "right"
    for status in statuses:
        name = Text(f"{status.handler}/{printable(status.key, 60)}", style="bold")
        table.add_row(
            Text.assemble(name, "\n", (str(status.batch_id), "dim")),
            Text.assemble(described(status.status), "\n", (f"{when(status.created_at)}", "dim")),
            Text.assemble(f"{status.total:,}", "\n", (f"{status.percent} %", "dim")),
            Text(f"{status.failed:,}", style="red" if status.failed else "dim"),
        )
    return table


def describe_submit(answer: dict[str, Any]) -> Table:
    """What a submit came to."""
    key = "" if answer["key"] is None else f"/{printable(answer['key'])}"
    return facts(
        [
            ("batch", None if answer["batch_id"] is None else Text(str(answer["batch_id"]), style="bold")),
            ("key", Text(f"{answer['handler']}{key}")),
            ("outcome", Text(_OUTCOMES[answer["outcome"]])),
            ("items", f"{answer['total']:,}"),
        ]
    )


def item_view(item: ItemRow) -> Table:
    """One item with its history."""
    row = item.row
    return facts(
        [
            ("item", Text(printable(row.item_key, 400), style="bold")),
            ("position", str(row.seq)),
            ("status", described(row.status)),
            (
                "attempts",
                f"{row.attempts}, and {row.crashes} lost with their worker" if row.crashes else f"{row.attempts}",
            ),
            ("due", when(item.due_at)),
            ("claimed", when(item.claimed_at)),
            ("settled", when(item.settled_at)),
            ("worker", None if item.worker is None else Text(printable(item.worker))),
            ("payload", Text(printable(to_json(row.payload), 600))),
            ("result", None if row.result is None else Text(printable(to_json(row.result), 600))),
            ("error", None if row.error is None else error_text(row.error)),
            *((event["at"][:19].replace("T", " "), event_words(event)) for event in item.history),
        ]
    )


def error_text(error: dict[str, Any]) -> Text:
    """An error in one line."""
    return Text(f"{error.get('code')}: {printable(str(error.get('message') or error.get('type')))}", style="red")


def event_words(event: dict[str, Any]) -> Text:
    """An event in one line."""
    text = Text(event["kind"])
    if error := event["data"].get("error"):
        text.append("  ")
        text.append_text(error_text(error))
    return text


def workers_view(workers: Iterable[WorkerRow]) -> Table:
    """The live workers."""
    table = listing("worker", "handlers", "at once", "build", "since")
    for worker in workers:
        table.add_row(
            Text(printable(worker.facts.identity)),
            ", ".join(sorted(worker.facts.handlers)),
            str(worker.facts.concurrency),
            Text(printable(worker.facts.build)),
            when(worker.started_at),
        )
    return table


def handlers_view(handlers: Iterable[dict[str, Any]]) -> Table:
    """The known handlers."""
    table = listing("handler", "runs in", "time limit", "attempts", "workers")
    for handler in handlers:
        table.add_row(
            handler["name"],
            handler["mode"],
            elapsed(timedelta(seconds=handler["timeout_seconds"])),
            str(handler["maximum_attempts"]),
            str(handler["workers"] or "none, known here"),
        )
    return table


def when(at: datetime | None) -> str | None:
    """A time on the reader's clock."""
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def elapsed(span: timedelta) -> str:
    """A span in its two largest units."""
    seconds = span.total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def violations_view(batches: int, violations: Sequence[Violation]) -> list[RenderableType]:
    """What `verify` found."""
    looked = "1 batch" if batches == 1 else f"{batches:,} batches"
    if not violations:
        return [Text(f"{looked}: every invariant holds", style="green")]
    table = listing("batch", "broken", "detail")
    for violation in violations:
        table.add_row(str(violation.batch_id), violation.code, Text(printable(violation.detail)))
    return [Text(f"{looked}: {len(violations)} violations", style="red"), table]


def sweep_view(answer: dict[str, Any]) -> list[RenderableType]:
    """What a pass of the sweeper did, and why it left other batches as they are."""
    healed, left = answer["healed"], answer["left_alone"]
    told = Text(
        f"{answer['examined']:,} quiet batches looked at, {len(healed):,} healed, {len(left):,} left as they are"
    )
    if not healed and not left:
        return [told]
    table = listing("batch", "swept", "the row says", "Temporal says")
    for line in (*healed, *left):
        row, temporal = line["evidence"]["row"], line["evidence"].get("temporal", {})
        action = Text(line["action"], style="green") if "action" in line else Text(line["cause"].replace("_", " "))
        counts_ = f"{row['status'].replace('_', ' ')}, {row['settled']:,} of {row['total']:,}"
        table.add_row(str(line["batch_id"]), action, counts_, str(temporal.get("status", "nothing")).replace("_", " "))
    return [told, table]


def row_view(row: ResultRow) -> Table:
    """What an item came to."""
    return facts(
        [
            ("status", described(row.status)),
            ("result", None if row.result is None else Text(printable(to_json(row.result), 600))),
            ("error", None if row.error is None else error_text(row.error)),
        ]
    )
