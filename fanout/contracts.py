"""What crosses the border to Temporal: the models that workflows and activities exchange, and stubs of the workflows.

Everything here carries ids, counts and times only; payloads, results and error texts stay in PostgreSQL. The one
exception is a `BatchRequest`: a start without our client brings its items along.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, RootModel, model_validator
from temporalio import workflow
from temporalio.common import SearchAttributeKey

from fanout.names import (
    CHANGED_SIGNAL,
    SEARCH_ATTRIBUTE_FAILED,
    SEARCH_ATTRIBUTE_HANDLER,
    SEARCH_ATTRIBUTE_KEY,
    SEARCH_ATTRIBUTE_STATUS,
    SEARCH_ATTRIBUTE_TOTAL,
)
from fanout.states import CLOSED, BatchStatus

HANDLER_ATTRIBUTE = SearchAttributeKey.for_keyword(SEARCH_ATTRIBUTE_HANDLER)
KEY_ATTRIBUTE = SearchAttributeKey.for_keyword(SEARCH_ATTRIBUTE_KEY)
STATUS_ATTRIBUTE = SearchAttributeKey.for_keyword(SEARCH_ATTRIBUTE_STATUS)
TOTAL_ATTRIBUTE = SearchAttributeKey.for_int(SEARCH_ATTRIBUTE_TOTAL)
FAILED_ATTRIBUTE = SearchAttributeKey.for_int(SEARCH_ATTRIBUTE_FAILED)

CANCEL_GRACE = timedelta(seconds=30)
RANGE_ITEMS = 5_000
"""The largest range that one activity works through."""


class Model(BaseModel):
    """A frozen message; unknown fields are ignored, so that an older worker can read a newer one's."""

    model_config = ConfigDict(frozen=True)


class BatchReference(Model):
    """Names one batch of one database: every activity refuses another database's batch."""

    batch_id: UUID
    database_id: UUID


class BatchStart(BatchReference):
    """The input of `Batch`, for a batch that is stored."""

    handler: str
    key: str


class BatchRequest(RootModel[Any]):
    """The input of `Batch` from anybody else: a request for a batch, as it came. The activity that stores it judges it.

    It takes whatever is no BatchStart, as a run whose input cannot be decoded would be tried for ever.
    """

    # Infinity, which some digits are read as, is to be refused, not turned into null.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    @model_validator(mode="before")
    @classmethod
    def _leave_starts_alone(cls, given: Any) -> Any:
        if isinstance(given, dict) and {*BatchReference.model_fields} <= given.keys():
            raise ValueError("it names a stored batch")
        return given


class SubmitWork(Model):
    """Asks to store a batch; `start_id` is the same for every try of one start, `fired_at` when a tick was due."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    request: BatchRequest
    origin: str
    start_id: UUID
    fired_at: datetime | None = None


class SubmitAnswer(Model):
    """What such a start came to; `goes_on` where the workflow itself has the id of the batch's run, which is open.

    `waits` where it is a schedule's, made this batch, and is to last until that is closed.
    """

    batch_id: UUID
    workflow_id: str
    handler: str
    key: str
    outcome: str
    total: int
    database_id: UUID
    goes_on: bool
    waits: bool = False


class Span(Model):
    """The seqs `lo` to `hi - 1`."""

    lo: int
    hi: int

    @property
    def size(self) -> int:
        """How many seqs it spans."""
        return self.hi - self.lo


class BatchView(Model):
    """What an activity says of the batch's row: a workflow decides from this alone, never from its own input.

    `why` is the reason of a state that needs one and `breaker` the type of error of an open breaker, both to be shown.
    `deadline_seconds` is what is left of the batch's time, by the database's clock. `successor` is the open batch that
    has the key of this closed one by now.
    """

    status: BatchStatus
    epoch: int
    reason: str | None
    total: int
    completed: int
    failed: int
    cancelled: int
    workers: int
    slots: int
    heartbeat_seconds: float
    range_size: int | None
    spans: list[Span]
    deadline_seconds: float | None = None
    has_budget: bool = False
    successor: UUID | None = None
    why: str | None = None
    breaker: str | None = None

    @property
    def closed(self) -> bool:
        """Whether the batch stands in a terminal state."""
        return self.status in CLOSED


class CloseRequest(BatchReference):
    """Asks to close one epoch of a batch."""

    epoch: int


class CancelRequest(BatchReference):
    """Asks to cancel a batch; `request_cancel` asks Temporal too, where nobody has: the run then ends Canceled."""

    reason: str | None
    request_cancel: bool = False


class RetryRequest(BatchReference):
    """Asks to reopen items in that state, those of one error type where it is named."""

    error_type: str | None
    status: Literal["failed", "cancelled"] = "failed"


class KeysRequest(BatchReference):
    """Asks for the item keys of a span, to name activities by them."""

    span: Span


class RangeInput(BatchReference):
    """One activity's work: the open rows of `span`, under `epoch`; `crowded` when more wait than may be pending."""

    handler: str
    key: str
    epoch: int
    span: Span
    crowded: bool = False


class RangeEnd(StrEnum):
    """Why a range activity returned."""

    DONE = "done"
    YIELDED = "yielded"
    WAITING = "waiting"


class RangeOutcome(Model):
    """What a range activity did; `rest` holds open rows unless it is done, due in `due_seconds` when it is waiting.

    `ended` counts the executions of its items, also those after which an item is to come again.
    """

    end: RangeEnd
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    ended: int = 0
    item_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    rest: Span | None = None
    due_seconds: float | None = None

    @property
    def settled(self) -> int:
        """How many rows it settled."""
        return self.completed + self.failed + self.cancelled


class Pace(Model):
    """What the ranges so far have shown: the next range's size, and the mean seconds that one item takes."""

    range_size: int = 1
    item_seconds: float | None = None


class ShardInput(BatchReference):
    """The work of one shard."""

    handler: str
    key: str
    epoch: int
    spans: list[Span]
    slots: int
    workers: int
    heartbeat_seconds: float
    fixed_range_size: int | None
    pace: Pace
    has_budget: bool = False


class ShardOutcome(Model):
    """What a shard did; `stopped` when the batch moved on and `rest` was left."""

    completed: int
    failed: int
    cancelled: int
    stopped: bool
    pace: Pace


class BatchOutcome(Model):
    """How a batch ended: the result of `Batch`."""

    status: BatchStatus
    epoch: int
    total: int
    completed: int
    failed: int
    cancelled: int


class SweepStart(Model):
    """The input of `SweepTick` and `Sweeper`: one pass over one database, within a time limit."""

    database_id: UUID
    deployment: str
    limit_seconds: float


class SweepOutcome(Model):
    """What a pass came to: how many batches it looked at, and of these how many it healed and left as they are."""

    examined: int
    healed: int
    left_alone: int


class Progress(Model):
    """The answer to the query `progress`: counts as this workflow has seen them."""

    status: str
    total: int
    completed: int
    failed: int
    cancelled: int


@workflow.defn(name="Batch")
class BatchWorkflow:
    """Typed stub of the parent workflow, for callers that do not have its code."""

    @workflow.run
    async def run(self, start: BatchStart | BatchRequest) -> BatchOutcome | SubmitAnswer:
        """Runs a batch to its close; or stores one that is asked for, and says what came of it."""
        raise NotImplementedError

    @workflow.signal(name=CHANGED_SIGNAL)
    async def changed(self) -> None:
        """Asks the workflow to look at the batch's row again."""
        raise NotImplementedError

    @workflow.query(name="progress")
    def progress(self) -> Progress:
        """Counts as the workflow has seen them."""
        raise NotImplementedError


@workflow.defn(name="SweepTick")
class SweepTickWorkflow:
    """Typed stub of what the sweeper's schedule starts."""

    @workflow.run
    async def run(self, start: SweepStart) -> bool:
        """Starts the sweeper, unless it runs."""
        raise NotImplementedError
