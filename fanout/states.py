"""The states of items and batches and the moves between them: what SQL checks, diagrams and property tests read."""

from enum import StrEnum


class ItemStatus(StrEnum):
    """The state of one result row."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BatchStatus(StrEnum):
    """The state of one batch."""

    PENDING = "pending"
    PROCESSING = "processing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    FAILED = "failed"
    CANCELLED = "cancelled"


SETTLED = frozenset({ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.CANCELLED})
CLOSED = frozenset(
    {BatchStatus.COMPLETED, BatchStatus.COMPLETED_WITH_FAILURES, BatchStatus.FAILED, BatchStatus.CANCELLED}
)

# A settled row moves again only when a retry of its batch reopens it (to pending, under a new epoch).
ITEM_MOVES: dict[ItemStatus, frozenset[ItemStatus]] = {
    ItemStatus.PENDING: frozenset({ItemStatus.PROCESSING, ItemStatus.CANCELLED}),
    ItemStatus.PROCESSING: frozenset({ItemStatus.PENDING, *SETTLED}),
    ItemStatus.COMPLETED: frozenset(),
    ItemStatus.FAILED: frozenset({ItemStatus.PENDING}),
    ItemStatus.CANCELLED: frozenset({ItemStatus.PENDING}),
}

BATCH_MOVES: dict[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.PENDING: frozenset({BatchStatus.PROCESSING, BatchStatus.PAUSED, BatchStatus.CANCELLING}),
    BatchStatus.PROCESSING: frozenset(
        {
            BatchStatus.PAUSED,
            BatchStatus.CANCELLING,
            BatchStatus.COMPLETED,
            BatchStatus.COMPLETED_WITH_FAILURES,
            BatchStatus.CANCELLED,
        }
    ),
    BatchStatus.PAUSED: frozenset(
        {
            BatchStatus.PROCESSING,
            BatchStatus.CANCELLING,
            BatchStatus.COMPLETED_WITH_FAILURES,
            BatchStatus.CANCELLED,
        }
    ),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED, BatchStatus.FAILED}),
    BatchStatus.COMPLETED: frozenset(),
    BatchStatus.COMPLETED_WITH_FAILURES: frozenset({BatchStatus.PROCESSING}),
    BatchStatus.FAILED: frozenset({BatchStatus.PROCESSING}),
    BatchStatus.CANCELLED: frozenset({BatchStatus.PROCESSING}),
}
