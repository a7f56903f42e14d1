"""What an examination can find: codes, how bad each is, and what mends it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is; the worst last."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Code(StrEnum):
    """What there is to find; those that hold up a batch have the names that `why` has for them."""

    SCHEMA_BEHIND = "schema_behind"
    SCHEMA_AHEAD = "schema_ahead"
    FSYNC_OFF = "fsync_off"
    SYNCHRONOUS_COMMIT_OFF = "synchronous_commit_off"
    AUTOVACUUM_OFF = "autovacuum_off"
    CONNECTIONS_NEARLY_USED = "connections_nearly_used"
    CLOCK_SKEW = "clock_skew"
    SEARCH_ATTRIBUTES_MISSING = "search_attributes_missing"
    DUPLICATE_SCHEDULES = "duplicate_schedules"
    SCHEDULE_FAILS = "schedule_fails"
    SURGE = "surge"
    SWEEPER_MISSING = "sweeper_missing"
    SWEEPER_PAUSED = "sweeper_paused"
    SWEEPER_LATE = "sweeper_late"
    SWEEPER_OF_OTHER_DATABASE = "sweeper_of_other_database"
    FAIRNESS_OFF = "fairness_off"
    FAIRNESS_UNKNOWN = "fairness_unknown"
    STALE_CLAIMS = "stale_claims"
    WORKFLOW_MISSING = "workflow_missing"
    RUN_WITHOUT_BATCH = "run_without_batch"
    NOBODY_POLLS = "nobody_polls"
    NO_WORKER_HAS_THE_HANDLER = "no_worker_has_the_handler"
    WORKFLOW_TASK_FAILS = "workflow_task_fails"
    WORKFLOW_PAUSED = "workflow_paused"
    RUN_OF_OTHER_BATCH = "run_of_other_batch"
    RUN_OF_OTHER_DATABASE = "run_of_other_database"
    BUILD_DIFFERS = "build_differs"
    BREAKER_OPEN = "breaker_open"
    PAUSED_FOR_LONG = "paused_for_long"
    NOT_CHECKED = "not_checked"


SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or that cannot be known."""

    code: Code
    severity: Severity
    detail: str
    fix: str


def some(values: Iterable[Any], shown: int = SHOWN) -> str:
    """The first few of many, in words."""
    listed = [str(value) for value in values]
    rest = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {rest:,} more" if rest > 0 else "")
