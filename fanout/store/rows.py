"""What the store's methods take and give: one shape per kind of row.

The two of which every item makes one are not frozen: a frozen one takes twice as long to make.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from fanout.states import CLOSED, BatchStatus, ItemStatus


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch with its live counts, as one snapshot; `workers` and `slots` count live workers that know its handler.

    `deadline_seconds` is what is left until `deadline_at` by the database's clock, below 0 once it has passed.
    """

    id: UUID
    handler: str
    key: str
    workflow_id: str
    title: str | None
    fingerprint: bytes
    options: dict[str, Any]
    status: BatchStatus
    epoch: int
    total: int
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    progress_at: datetime | None
    closed_at: datetime | None
    deadline_at: datetime | None
    deadline_seconds: float | None
    breaker_type: str | None
    breaker_until: datetime | None
    duplicates: int
    duplicate_origin: str | None
    completed: int
    failed: int
    cancelled: int
    workers: int
    slots: int

    @property
    def closed(self) -> bool:
        """Whether the batch stands in a terminal state."""
        return self.status in CLOSED

    @property
    def open(self) -> int:
        """How many rows are not settled."""
        return self.total - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class Position:
    """Where a batch's stream of events begins and ends, where its newest `closed` stands, and whether it is closed.

    `first_id` and `closed_id` are None without such an event.
    """

    closed: bool
    last_id: int
    first_id: int | None
    closed_id: int | None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """The facts of a batch that a submit inserts; `deadline` counts from the insert."""

    id: UUID
    handler: str
    key: str
    workflow_id: str
    title: str | None
    options: dict[str, Any]
    deadline: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """The batch that has a key; `replaceable` if the policy that was asked about lets a new batch have it."""

    id: UUID
    fingerprint: bytes
    total: int
    closed: bool
    replaceable: bool


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells an item from another without its payload: its key, and the payload's size and SHA-256."""

    key: str
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A start that made no batch, because this one had its key."""

    at: datetime
    origin: str
    outcome: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item as COPY writes it; `payload` is JSON text."""

    key: str
    payload: str


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """A small batch with all of its items and their fingerprint, ready to be stored."""

    batch: NewBatch
    items: tuple[StoredItem, ...]
    fingerprint: bytes


@dataclass(slots=True)
class ClaimedItem:
    """A row that an attempt owns under `claim_id` until it settles or gives it back."""

    seq: int
    key: str
    payload: str
    claim_id: UUID
    attempts: int
    crashes: int
    throttles: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to a claim; `current` is False when the batch moved on: another epoch, or not processing.

    `breaker_in` is given while the batch's breaker is open: the seconds until the next probe, 0 or less if it is due.
    """

    current: bool
    items: list[ClaimedItem]
    breaker_in: float | None = None


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is open in a range: claimable now, due later, or held by a live worker."""

    open: int
    first: int | None
    claimable: int
    first_claimable: int | None
    due_in: float | None
    error_type: str | None
    own_claims: list[UUID]


@dataclass(slots=True)
class Completion:
    """A row to complete; `result` is JSON text."""

    seq: int
    claim_id: UUID
    result: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row to fail or to give back, with what that adds to its counts; `kind` names the event, if there is one."""

    seq: int
    claim_id: UUID
    error: dict[str, Any] | None = None
    attempts: int = 0
    crashes: int = 0
    throttles: int = 0
    delay: float | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One item's state with its result or error, and its payload where it was asked for."""

    seq: int
    item_key: str
    status: ItemStatus
    attempts: int
    crashes: int
    result: Any
    error: dict[str, Any] | None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item with everything that is known of it."""

    row: ResultRow
    due_at: datetime | None
    claimed_at: datetime | None
    settled_at: datetime | None
    worker: str | None
    history: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker says of itself in its row; `handlers` maps a name to its mode, timeout and retry policy."""

    id: UUID
    identity: str
    handlers: dict[str, dict[str, Any]]
    build: str
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A live worker."""

    facts: WorkerFacts
    lanes: list[str]
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that a batch's rows break."""

    batch_id: UUID
    code: str
    detail: str


def result_row(record: asyncpg.Record) -> ResultRow:
    """A row as PostgreSQL answers it."""
    return ResultRow(
        seq=record["seq"],
        item_key=record["item_key"],
        status=ItemStatus(record["status"]),
        attempts=record["attempts"],
        crashes=record["crashes"],
        result=decode(record["result"]),
        error=decode(record["error"]),
        payload=decode(record["payload"]),
    )


def decode(text: str | None) -> Any:
    """The value of a JSON text, and null as None."""
    return None if text is None else json.loads(text)
