"""Every metric of Fanout's own: its name, its labels, what it says. No label ever holds an id or a key."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `of_process` tells those that each process counts for itself from those that are read from rows."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    of_process: bool = True
    buckets: tuple[float, ...] = ()


ITEM_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)
LAG_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

ITEMS_SETTLED = Metric(
    "fanout_items_settled_total",
    "counter",
    ("handler", "state"),
    "Items that this process recorded as completed or failed.",
)
ATTEMPT_DURATION = Metric(
    "fanout_attempt_duration_seconds",
    "histogram",
    ("handler", "outcome"),
    "How long attempts ran, by the class of their end.",
    buckets=ITEM_SECONDS,
)
LOST_EXECUTIONS = Metric(
    "fanout_lost_executions_total",
    "counter",
    ("handler",),
    "Executions that ended with their worker or child process, noted by who took them over.",
)
STALE_WRITES = Metric(
    "fanout_stale_writes_refused_total",
    "counter",
    ("handler",),
    "Writes that were refused because another claim has the row.",
)
SWEEPER_ACTIONS = Metric(
    "fanout_sweeper_actions_total",
    "counter",
    ("action",),
    "Batches that the sweeper started, revived, cancelled or failed.",
)
BATCHES_STALLED = Metric(
    "fanout_batches_stalled_total",
    "counter",
    ("cause",),
    "Standstills of batches that the sweeper told of, by what holds them up.",
)
DUPLICATES = Metric(
    "fanout_duplicates_suppressed_total",
    "counter",
    ("handler", "outcome"),
    "Submits that made no batch because their key has one.",
)
NOTIFY_LAG = Metric(
    "fanout_notify_lag_seconds",
    "histogram",
    (),
    "From a change of a batch to the notification that tells of it.",
    buckets=LAG_SECONDS,
)
DATABASE_UP = Metric(
    "fanout_database_up",
    "gauge",
    (),
    "1 while the gauges that are read from rows can be read; without them they are left out.",
    of_process=False,
)
ITEMS_OPEN = Metric(
    "fanout_items_open",
    "gauge",
    ("handler", "state"),
    "Items that are not settled: processing while a live worker holds them, else pending.",
    of_process=False,
)
BATCHES_OPEN = Metric(
    "fanout_batches_open", "gauge", ("handler", "status"), "Batches that are not closed.", of_process=False
)
OLDEST_BATCH = Metric(
    "fanout_oldest_open_batch_age_seconds",
    "gauge",
    ("handler",),
    "How long ago the oldest open batch was submitted.",
    of_process=False,
)
OLDEST_CLAIM = Metric(
    "fanout_oldest_claim_age_seconds",
    "gauge",
    ("handler",),
    "For how long a live worker has held the item that is in work longest.",
    of_process=False,
)
WORKERS = Metric(
    "fanout_workers", "gauge", ("handler",), "Workers with a fresh lease that have the handler.", of_process=False
)
LAST_SWEEP = Metric(
    "fanout_last_sweep_age_seconds",
    "gauge",
    (),
    "How long ago the sweeper finished a pass; missing before the first one.",
    of_process=False,
)

METRICS = (
    ITEMS_SETTLED,
    ATTEMPT_DURATION,
    LOST_EXECUTIONS,
    STALE_WRITES,
    SWEEPER_ACTIONS,
    BATCHES_STALLED,
    DUPLICATES,
    NOTIFY_LAG,
    DATABASE_UP,
    ITEMS_OPEN,
    BATCHES_OPEN,
    OLDEST_BATCH,
    OLDEST_CLAIM,
    WORKERS,
    LAST_SWEEP,
)
