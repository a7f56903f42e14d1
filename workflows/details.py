"""What the Web UI shows of a batch while it runs, in Markdown: it costs no event of the history."""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fanout.contracts import BatchView, Progress
    from fanout.markdown import code


def batch_details(seen: Progress, view: BatchView | None, now: datetime) -> str:
    """State, reason, counts as a table, and as of when."""
    return "\n\n".join([_headline(seen, view), *_hindrances(view), counts_table(seen), _as_of(now)])


def shard_details(seen: Progress, now: datetime) -> str:
    """The counts of one shard."""
    return "\n\n".join([_settled(seen), counts_table(seen), _as_of(now)])


def counts_table(seen: Progress) -> str:
    """A table of one line."""
    numbers = (seen.completed, seen.failed, seen.cancelled, seen.total - _sum(seen), seen.total)
    cells = " | ".join(f"{number:,}" for number in numbers)
    return f"| completed | failed | cancelled | open | total |\n| ---: | ---: | ---: | ---: | ---: |\n| {cells} |"


def _headline(seen: Progress, view: BatchView | None) -> str:
    epoch = f", epoch {view.epoch}" if view is not None and view.epoch > 1 else ""
    return f"**{seen.status}**{epoch}: {_settled(seen)}"


def _hindrances(view: BatchView | None) -> list[str]:
    if view is None:
        return []
    told = {"reason": view.why, "its breaker is open after": view.breaker}
    return [f"{what}: {code(text)}" for what, text in told.items() if text]


def _settled(seen: Progress) -> str:
    settled = _sum(seen)
    percent = 100 if seen.total == 0 else 100 * settled // seen.total
    return f"{settled:,} of {seen.total:,} items settled ({percent} %)"


def _sum(seen: Progress) -> int:
    return seen.completed + seen.failed + seen.cancelled


def _as_of(now: datetime) -> str:
    return f"as this workflow has seen it at {now:%Y-%m-%d %H:%M:%S} UTC; the row is the truth: `starter.py status`"
