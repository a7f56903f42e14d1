"""PostgreSQL: the only package that holds SQL, knows SQLSTATEs and names constraints."""

from fanout.store.batches import BatchStore, Reopened
from fanout.store.browsing import Browsing, FailureGroup, PageRow, Settles, Wanted, step
from fanout.store.effects import Effects
from fanout.store.faults import AWAY, OUTAGE, UNSTORABLE
from fanout.store.joins import Joins
from fanout.store.news import OnChange, nobody
from fanout.store.pool import Connection, Pool, connect_pool
from fanout.store.query import Column, Query
from fanout.store.rows import (
    BatchRow,
    Claim,
    ClaimedItem,
    Completion,
    Duplicate,
    Holder,
    ItemRow,
    NewBatch,
    Position,
    Remainder,
    ResultRow,
    Stamp,
    StoredItem,
    Verdict,
    Violation,
    WholeBatch,
    WorkerFacts,
    WorkerRow,
)
from fanout.store.schema import MIGRATIONS, SCHEMA_VERSION, check_schema, migrate, script
from fanout.store.submission import Submission, check_place
from fanout.store.sweeps import FIRST, LastSweep, QuietBatch, Standstill, SweepStore
from fanout.store.ticks import Ear, Ticks, listening
from fanout.store.work import WorkStore

__all__ = [
    "AWAY",
    "FIRST",
    "MIGRATIONS",
    "OUTAGE",
    "SCHEMA_VERSION",
    "UNSTORABLE",
    "BatchRow",
    "BatchStore",
    "Browsing",
    "Claim",
    "ClaimedItem",
    "Column",
    "Completion",
    "Connection",
    "Duplicate",
    "Ear",
    "Effects",
    "FailureGroup",
    "Holder",
    "ItemRow",
    "Joins",
    "LastSweep",
    "NewBatch",
    "OnChange",
    "PageRow",
    "Pool",
    "Position",
    "Query",
    "QuietBatch",
    "Remainder",
    "Reopened",
    "ResultRow",
    "Settles",
    "Stamp",
    "Standstill",
    "StoredItem",
    "Submission",
    "SweepStore",
    "Ticks",
    "Verdict",
    "Violation",
    "Wanted",
    "WholeBatch",
    "WorkStore",
    "WorkerFacts",
    "WorkerRow",
    "check_place",
    "check_schema",
    "connect_pool",
    "listening",
    "migrate",
    "nobody",
    "script",
    "step",
]
