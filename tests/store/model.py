"""What the store promises of one batch, in plain Python; every answer and every row is compared with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from fanout.states import CLOSED, SETTLED, BatchStatus, ItemStatus
from fanout.store import Completion, Verdict

OPEN = frozenset(ItemStatus) - SETTLED
Moves = list[tuple[str, int | None]]


@dataclass
class ModelRow:
    """One row; `due` says whether a pending row may be claimed now."""

    status: ItemStatus = ItemStatus.PENDING
    claim_id: UUID | None = None
    worker_id: UUID | None = None
    attempts: int = 0
    crashes: int = 0
    throttles: int = 0
    due: bool = True
    result: str | None = None
    error: str | None = None

    def cancel(self, reason: str) -> None:
        """Settles the row for its batch's cancel."""
        self.status, self.error, self.due = ItemStatus.CANCELLED, "Cancelled", True

    def add(self, verdict: Verdict) -> None:
        """Adds what a verdict charges."""
        self.attempts += verdict.attempts
        self.crashes += verdict.crashes
        self.error = str(verdict.error["type"]) if verdict.error else self.error


@dataclass
class ModelBatch:
    """A batch with its rows, the workers that live, and the events that it must have: (kind, seq or epoch)."""

    total: int
    live: set[UUID]
    rows: list[ModelRow] = field(init=False)
    limit: int | None = None
    on_budget: str = "pause"
    status: BatchStatus = BatchStatus.PENDING
    ends_as: BatchStatus = BatchStatus.CANCELLED
    epoch: int = 1
    forgiven: int = 0
    paused_by_budget: bool = False
    has_deadline: bool = True
    events: Moves = field(default_factory=lambda: [("submitted", None)])

    def __post_init__(self) -> None:
        self.rows = [ModelRow() for _ in range(self.total)]

    @property
    def open_seqs(self) -> list[int]:
        """The rows that are not settled."""
        return [seq for seq, row in enumerate(self.rows) if row.status in OPEN]

    def count(self, status: ItemStatus) -> int:
        """How many rows are in that state."""
        return sum(row.status is status for row in self.rows)

    def is_claimable(self, row: ModelRow, worker_id: UUID) -> bool:
        """Pending and due, or processing under another worker whose lease is gone, while this one has one."""
        if row.status is ItemStatus.PENDING:
            return row.due
        abandoned = row.worker_id not in {*self.live, worker_id}
        return row.status is ItemStatus.PROCESSING and abandoned and worker_id in self.live

    def open(self) -> None:
        """The first open."""
        if self.status is BatchStatus.PENDING:
            self.status = BatchStatus.PROCESSING
            self.events.append(("started", None))

    def claim(
        self, epoch: int, span: tuple[int, int], limit: int, claim_id: UUID, worker_id: UUID
    ) -> tuple[bool, list[int]]:
        """Whether the claim is of this epoch, and the rows that it takes."""
        if self.status is not BatchStatus.PROCESSING or epoch != self.epoch:
            return False, []
        seqs = range(span[0], min(span[1], self.total))
        free = [seq for seq in seqs if self.is_claimable(self.rows[seq], worker_id)]
        taken = free[:limit]
        for seq in taken:
            row = self.rows[seq]
            if row.status is ItemStatus.PROCESSING:
                row.crashes += 1
                self.events.append(("lost", seq))
            row.status, row.claim_id, row.worker_id, row.due = ItemStatus.PROCESSING, claim_id, worker_id, True
        return True, taken

    def complete(self, completions: Iterable[Completion]) -> set[int]:
        """Completes what is held under these claims; answers what stands completed under them."""
        answer = set()
        for completion in completions:
            row = self.rows[completion.seq]
            if row.status is ItemStatus.PROCESSING and row.claim_id == completion.claim_id:
                row.status, row.result, row.error = ItemStatus.COMPLETED, completion.result, None
            if row.status is ItemStatus.COMPLETED and row.claim_id == completion.claim_id:
                answer.add(completion.seq)
        return answer

    def fail(self, verdicts: Iterable[Verdict]) -> set[int]:
        """Fails what is held under these claims; answers what stands failed under them."""
        answer = set()
        for verdict in sorted(verdicts, key=lambda verdict: verdict.seq):
            row = self.rows[verdict.seq]
            if row.status is ItemStatus.PROCESSING and row.claim_id == verdict.claim_id:
                row.status = ItemStatus.FAILED
                row.add(verdict)
                self.events.append(("failed", verdict.seq))
            if row.status is ItemStatus.FAILED and row.claim_id == verdict.claim_id:
                answer.add(verdict.seq)
        return answer

    def release(self, verdicts: Iterable[Verdict]) -> set[int]:
        """Gives back what is held under these claims, or cancels it; answers what it changed."""
        answer = set()
        for verdict in sorted(verdicts, key=lambda verdict: verdict.seq):
            row = self.rows[verdict.seq]
            if row.status is not ItemStatus.PROCESSING or row.claim_id != verdict.claim_id:
                continue
            answer.add(verdict.seq)
            row.add(verdict)
            row.throttles += verdict.throttles
            if verdict.kind is not None:
                self.events.append((verdict.kind, verdict.seq))
            if self.status is BatchStatus.CANCELLING:
                row.cancel("")
            else:
                row.status, row.claim_id, row.worker_id = ItemStatus.PENDING, None, None
                row.due = not verdict.delay
        return answer

    def cancel(self) -> bool:
        """Cancels the batch and all that does not run."""
        return self._give_up("cancelling", BatchStatus.CANCELLED)

    def expire(self) -> bool:
        """Gives the batch up at its deadline, which has passed from the start."""
        return self.has_deadline and self._give_up("deadline_passed", BatchStatus.FAILED)

    def _give_up(self, event: str, ends_as: BatchStatus) -> bool:
        if self.status not in (BatchStatus.PENDING, BatchStatus.PROCESSING, BatchStatus.PAUSED):
            return False
        self.status, self.ends_as = BatchStatus.CANCELLING, ends_as
        self.events.append((event, None))
        self._cancel_rows(overdue=False)
        return True

    def pause(self) -> bool:
        """A person's pause."""
        if self.status not in (BatchStatus.PENDING, BatchStatus.PROCESSING):
            return False
        self.status = BatchStatus.PAUSED
        self.events.append(("paused", None))
        return True

    def resume(self) -> bool:
        """Goes on, and forgives."""
        if self.status is not BatchStatus.PAUSED:
            return False
        self.status, self.forgiven, self.paused_by_budget = (
            BatchStatus.PROCESSING,
            self.count(ItemStatus.FAILED),
            False,
        )
        self.events.append(("resumed", None))
        return True

    def trip(self) -> None:
        """Holds the failures against the budget."""
        gives_up = self.on_budget == "fail"
        stoppable = self.status is BatchStatus.PROCESSING or (gives_up and self.status is BatchStatus.PAUSED)
        if self.limit is None or not stoppable or not (gives_up or self.open_seqs):
            return
        if self.count(ItemStatus.FAILED) - self.forgiven > self.limit:
            self.status = BatchStatus.CANCELLING if gives_up else BatchStatus.PAUSED
            self.ends_as = BatchStatus.FAILED if gives_up else self.ends_as
            self.paused_by_budget = not gives_up
            self.events.append(("budget_tripped", None))

    def _cancel_rows(self, overdue: bool) -> None:
        for row in self.rows:
            held = row.status is ItemStatus.PROCESSING and not overdue and row.worker_id in self.live
            if row.status in OPEN and not held:
                row.cancel("")

    def close(self, epoch: int, overdue: bool) -> bool:
        """Closes this epoch if no row is open."""
        self.trip()
        if self.status is BatchStatus.CANCELLING:
            self._cancel_rows(overdue)
        held_up = self.status is BatchStatus.PENDING or (
            self.status is BatchStatus.PAUSED and not self.paused_by_budget
        )
        if self.open_seqs or epoch != self.epoch or self.status in CLOSED or held_up:
            return False
        if self.status is BatchStatus.CANCELLING or self.count(ItemStatus.CANCELLED):
            self.status = self.ends_as
        elif self.count(ItemStatus.FAILED):
            self.status = BatchStatus.COMPLETED_WITH_FAILURES
        else:
            self.status = BatchStatus.COMPLETED
        self.events.append(("closed", self.epoch))
        return True

    def reopen(self, error_type: str | None, status: ItemStatus) -> tuple[int, int] | None:
        """A retry of the rows in that state, of one error type where one is named."""
        chosen = [row for row in self.rows if row.status is status and error_type in (None, row.error)]
        reopenable = {BatchStatus.PROCESSING, BatchStatus.PAUSED, BatchStatus.COMPLETED_WITH_FAILURES}
        reopenable |= {BatchStatus.FAILED} | ({BatchStatus.CANCELLED} if status is ItemStatus.CANCELLED else set())
        if self.status not in reopenable or not chosen:
            return None
        if self.status is not BatchStatus.PAUSED:
            self.status = BatchStatus.PROCESSING
        self.epoch += 1
        for row in chosen:
            row.status, row.claim_id, row.worker_id, row.due = ItemStatus.PENDING, None, None, True
            row.attempts = row.crashes = row.throttles = 0
            row.error = row.error if status is ItemStatus.FAILED else None
        self.forgiven = self.count(ItemStatus.FAILED)
        self.ends_as, self.paused_by_budget, self.has_deadline = BatchStatus.CANCELLED, False, False
        self.events.append(("reopened", self.epoch))
        return self.epoch, len(chosen)
