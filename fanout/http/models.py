"""What the endpoints take and give beside the status of a batch, which is the client's own model."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from fanout.client import Status, SubmitOutcome
from fanout.states import ItemStatus


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """A request's body: a name that it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SubmitSettings(Body):
    """The options of a submit, as those of the client."""

    title: str | None = None
    range_size: int | None = None
    max_failures: int | str | None = Field(None, description="A number of items, or a percentage such as 5%.")
    on_budget: Literal["pause", "fail"] | None = None
    deadline: str | None = Field(None, description="As 90s, 10m, 2h or 7d, from now.")
    on_close: str | None = Field(None, description="A handler that gets the status as an item once it is closed.")
    dedup: str | None = Field(None, description="forever, open, success, or a duration.")
    allow_unknown: bool | None = Field(None, description="Accept a handler that no worker knows yet.")


class SubmitBody(Body):
    """A batch; an item is a payload, or an object whose only names are `key` and `payload`."""

    handler: str
    items: list[Any]
    key: str | None = None
    options: SubmitSettings = SubmitSettings()


class SubmitQuery(BaseModel):
    """What a submit of JSON Lines says in its query: the same as the body of one in JSON, but for the items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    handler: str | None = None
    key: str | None = None
    title: str | None = None
    range_size: int | None = None
    max_failures: str | None = None
    on_budget: str | None = None
    deadline: str | None = None
    on_close: str | None = None
    dedup: str | None = None
    allow_unknown: bool | None = None


class NoBody(Body):
    """Nothing: an empty object, or no body at all."""


class CancelBody(Body):
    """How a batch is cancelled."""

    reason: str | None = None


class RetryBody(Body):
    """Which items are retried."""

    error_type: str | None = Field(None, min_length=1, max_length=200)
    error_code: str | None = Field(None, min_length=1, max_length=200)
    items: list[str] | None = Field(None, min_length=1, max_length=1_000)
    status: Literal["failed", "cancelled"] = "failed"


class Submitted(Answer):
    """What a submit came to."""

    batch_id: UUID
    workflow_id: str
    handler: str
    key: str
    outcome: SubmitOutcome
    total: int


class Retried(Answer):
    """What a retry came to: the batch's epoch after it, and how many items it reopened."""

    batch_id: UUID
    epoch: int
    reopened: int


class Row(Answer):
    """One item with its result or its error."""

    seq: int
    item_key: str
    status: ItemStatus
    attempts: int
    crashes: int
    result: Any
    error: dict[str, Any] | None
    result_left_out: bool = Field(False, description="On a page a result of more than 32 KiB is left out.")


class WholeRow(Row):
    """One item with everything that is known of it."""

    payload: Any
    due_at: datetime | None
    claimed_at: datetime | None
    settled_at: datetime | None
    worker: str | None
    history: list[dict[str, Any]]


class Page(Answer):
    """`next` is the cursor of the page behind this one, and null on the last; a page before may be short or empty."""

    next: str | None


class BatchPage(Page):
    """Batches, the newest first."""

    batches: list[Status]


class RowPage(Page):
    """Items in seq order; where a prefix is looked for, in the order of their keys' bytes."""

    items: list[Row]


class FailureExample(Answer):
    """One item of a group of failures."""

    seq: int
    item_key: str
    attempts: int
    message: str


class FailureGroup(Answer):
    """Failed items whose errors share code and type."""

    code: str
    type: str
    count: int
    example: FailureExample | None


class Failures(Answer):
    """The failed items by code and type of their errors, the biggest groups first; `estimated` from a sample."""

    failed: int
    estimated: bool
    groups: list[FailureGroup]
    left_out: int = Field(description="How many smaller groups there are.")


class Span(Answer):
    """How many items settled from `at` on, until the next span begins."""

    at: datetime
    completed: int
    failed: int
    cancelled: int


class Timeline(Answer):
    """When the batch's items settled, from its start to its close or to now; `estimated` from a sample."""

    begin: datetime
    end: datetime
    span_seconds: float
    estimated: bool
    spans: list[Span]


class KnownHandler(Answer):
    """A handler that live workers know."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    workers: int


class LiveWorker(Answer):
    """A worker whose lease is fresh."""

    worker_id: UUID
    identity: str
    handlers: list[str]
    lanes: list[str]
    concurrency: int
    build: str
    started_at: datetime
    seen_at: datetime


class HandlerList(Answer):
    """All known handlers, by name."""

    handlers: list[KnownHandler]


class WorkerList(Answer):
    """All live workers."""

    workers: list[LiveWorker]


class Health(Answer):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(Answer):
    """Both servers answer, and the database has this version's schema."""

    status: Literal["ready"] = "ready"
