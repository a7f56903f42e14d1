"""What the demo shows at its end: every paper, and what was proved."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from fanout.cli.output import printable
from fanout.cli.stacks import address_rows
from fanout.cli.views import described, facts, listing
from fanout.client import Status
from fanout.devstack import Stack
from fanout.states import BatchStatus, ItemStatus
from fanout.store import ResultRow, Violation


class Paper(Protocol):
    """One of the demo's items."""

    @property
    def key(self) -> str:
        """The file's name."""

    @property
    def payload(self) -> dict[str, Any]:
        """What the handler gets."""


@dataclass(frozen=True)
class Plan:
    """What the demo works on, and what has to come of it."""

    papers: Sequence[Paper]
    expected_failures: dict[str, str]


@dataclass(frozen=True)
class Proof:
    """What came of the demo's batch; `killed_at` is how far it was when its worker was killed."""

    status: Status
    rows: Sequence[ResultRow]
    plan: Plan
    recorded_twice: int
    violations: Sequence[Violation]
    killed_at: Status | None

    @property
    def failures(self) -> dict[str, str]:
        """The failed papers with their codes."""
        return {row.item_key: (row.error or {})["code"] for row in self.rows if row.status is ItemStatus.FAILED}

    @property
    def taken_over(self) -> int:
        """How many executions died with their worker and were taken over."""
        return sum(row.crashes for row in self.rows)

    @property
    def claims(self) -> list[tuple[str, bool]]:
        """What was to be proved, and whether it was."""
        status = self.status
        running = 0 if self.killed_at is None else self.killed_at.processing
        broken = ", ".join(f"{name}: {code}" for name, code in self.plan.expected_failures.items())
        return [
            (f"{status.total} papers, {status.completed} completed and {status.failed} failed", self._all_settled),
            (f"failed are the broken ones alone ({broken})", self.failures == self.plan.expected_failures),
            (f"1 worker was killed (SIGKILL) with {running} papers in work", running > 0),
            (f"{self.taken_over} lost executions were taken over by another worker", self.taken_over > 0),
            (f"{self.recorded_twice} papers recorded twice, by an audit trigger", self.recorded_twice == 0),
            (f"{len(self.violations)} invariants broken, by verify", not self.violations),
        ]

    @property
    def _all_settled(self) -> bool:
        status = self.status
        return (
            status.status is BatchStatus.COMPLETED_WITH_FAILURES
            and status.total == len(self.plan.papers) == len(self.rows)
            and status.completed + status.failed == status.total
        )

    @property
    def holds(self) -> bool:
        """Whether all is as it should be."""
        return all(proved for _, proved in self.claims)

    @property
    def facts(self) -> dict[str, Any]:
        """The last line of `demo --json`."""
        return {
            **self.status.model_dump(),
            "worker_kills": 0 if self.killed_at is None else 1,
            "recorded_twice": self.recorded_twice,
            "violations": [asdict(violation) for violation in self.violations],
            "taken_over": self.taken_over,
            "settled_at_kill": None if self.killed_at is None else self.killed_at.settled,
            "processing_at_kill": None if self.killed_at is None else self.killed_at.processing,
        }


def papers_view(rows: Sequence[ResultRow]) -> Table:
    """Every paper with what was found in it, or why it failed."""
    table = listing("paper", "state", "found")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(Text(printable(row.item_key)), described(row.status), _found(row))
    return table


def _found(row: ResultRow) -> Text:
    if row.error is not None:
        return Text(f"{row.error['code']}: {_without_name(row)}", style="red")
    words, pages = row.result["words"], row.result["pages"]
    text = Text(f"{words:>5,} words")
    text.append("" if pages is None else f"  {pages} page{'s' if pages > 1 else ''}")
    text.append(f"  failed {row.attempts} times first" if row.attempts else "", style="yellow")
    text.append("  taken over" if row.crashes else "", style="yellow")
    return text


def _without_name(row: ResultRow) -> str:
    message = (row.error or {}).get("message") or ""
    return printable(message.removeprefix(row.item_key).strip())


def proof_view(proof: Proof) -> Table:
    """What was proved, line by line."""
    table = Table.grid(padding=(0, 1))
    for claim, proved in proof.claims:
        table.add_row(Text("✓" if proved else "✗", style="bold green" if proved else "bold red"), claim)
    return table


def kept_view(stack: Stack) -> Table:
    """Where the demo's servers are, and how to join them."""
    join = f"FANOUT_HOME={stack.home} python starter.py list"
    return facts([*address_rows(stack), ("join", Text(join)), ("end", Text("Ctrl-C"))])
