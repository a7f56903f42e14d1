"""What a batch's status looks like to people and programs: one shape for client, command line and HTTP."""

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from fanout.states import CLOSED, BatchStatus
from fanout.store import BatchRow


class Breaker(BaseModel):
    """Why a batch that is `processing` starts nothing: errors of one type in a row, and when the next item is tried."""

    model_config = ConfigDict(frozen=True)

    error_type: str
    until: datetime


class Status(BaseModel):
    """One batch with its counts, which always add up to `total`; `workers` are the live ones that know its handler.

    `duplicates` is how many other starts found this batch under their key, `duplicate_origin` whence the last.
    """

    model_config = ConfigDict(frozen=True)

    batch_id: UUID
    workflow_id: str
    handler: str
    key: str
    title: str | None
    status: BatchStatus
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    epoch: int
    created_at: datetime
    started_at: datetime | None
    progress_at: datetime | None
    closed_at: datetime | None
    reason: str | None
    workers: int
    deadline_at: datetime | None
    max_failures: int | str | None
    breaker: Breaker | None
    duplicates: int
    duplicate_origin: str | None

    @classmethod
    def of(cls, batch: BatchRow, processing: int) -> "Status":
        """The status of a row of which `processing` items were claimed a moment later."""
        processing = min(processing, batch.open)
        return cls(
            batch_id=batch.id,
            workflow_id=batch.workflow_id,
            handler=batch.handler,
            key=batch.key,
            title=batch.title,
            status=batch.status,
            total=batch.total,
            pending=batch.open - processing,
            processing=processing,
            completed=batch.completed,
            failed=batch.failed,
            cancelled=batch.cancelled,
            epoch=batch.epoch,
            created_at=batch.created_at,
            started_at=batch.started_at,
            progress_at=batch.progress_at,
            closed_at=batch.closed_at,
            reason=batch.reason,
            workers=batch.workers,
            deadline_at=batch.deadline_at,
            max_failures=batch.options.get("max_failures"),
            breaker=_breaker(batch),
            duplicates=batch.duplicates,
            duplicate_origin=batch.duplicate_origin,
        )

    @property
    def closed(self) -> bool:
        """Whether the batch stands in a terminal state."""
        return self.status in CLOSED

    @property
    def settled(self) -> int:
        """How many items need no more work."""
        return self.completed + self.failed + self.cancelled

    @property
    def percent(self) -> int:
        """Settled items of a hundred, rounded down; an empty batch has 100."""
        return 100 if self.total == 0 else 100 * self.settled // self.total


def _breaker(batch: BatchRow) -> Breaker | None:
    if batch.breaker_type is None or batch.breaker_until is None:
        return None
    return Breaker(error_type=batch.breaker_type, until=batch.breaker_until)
