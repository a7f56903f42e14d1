"""PostgreSQL: the only package that holds SQL, knows SQLSTATEs and names constraints."""

from fanout.store.batches import BatchStore, Reopened
from fanout.store.browsing import Browsing, FailureGroup, PageRow, Settles, Wanted, step
from fanout.store.effects import Effects
from fanout.store.faults import AWAY, OUTAGE, UNSTORABLE
from fanout.store.gauges import Gauges, GaugeStore, HeldWork, OpenWork
from fanout.store.health import ClockWitness, HealthStore, ServerFacts, StaleClaim, StoppedBatch, Surge
from fanout.store.joins import Joins
from fanout.store.news import OnChange, nobody
from fanout.store.pool import Connection, Pool, connect_pool
from fanout.store.purges import PurgeStore
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
from fanout.store.standings import Crew, ItemStanding, Standing, StandingStore
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
    "ClockWitness",
    "Column",
    "Completion",
    "Connection",
    "Crew",
    "Duplicate",
    "Ear",
    "Effects",
    "FailureGroup",
    "GaugeStore",
    "Gauges",
    "HealthStore",
    "HeldWork",
    "Holder",
    "ItemRow",
    "ItemStanding",
    "Joins",
    "LastSweep",
    "NewBatch",
    "OnChange",
    "OpenWork",
    "PageRow",
    "Pool",
    "Position",
    "PurgeStore",
    "Query",
    "QuietBatch",
    "Remainder",
    "Reopened",
    "ResultRow",
    "ServerFacts",
    "Settles",
    "StaleClaim",
    "Stamp",
    "Standing",
    "StandingStore",
    "Standstill",
    "StoppedBatch",
    "StoredItem",
    "Submission",
    "Surge",
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
