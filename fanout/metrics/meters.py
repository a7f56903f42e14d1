"""The counters of one process, kept by the Temporal SDK beside its own; without an endpoint they cost nothing."""

from temporalio.common import MetricCounter, MetricHistogramFloat, MetricMeter

from fanout.metrics.catalogue import (
    ATTEMPT_DURATION,
    BATCHES_STALLED,
    DUPLICATES,
    ITEMS_SETTLED,
    LOST_EXECUTIONS,
    NOTIFY_LAG,
    STALE_WRITES,
    SWEEPER_ACTIONS,
    Metric,
)


class Meters:
    """Counts nothing: what a process does that nobody scrapes."""

    def count_settled(self, handler: str, state: str) -> None:
        """An item was recorded as completed or failed."""

    def note_attempt(self, handler: str, outcome: str, seconds: float) -> None:
        """An attempt ended."""

    def count_lost(self, handler: str, number: int) -> None:
        """Executions were lost with their worker or child process."""

    def count_stale(self, handler: str) -> None:
        """A write was refused because another claim has the row."""

    def count_swept(self, action: str) -> None:
        """The sweeper changed or started a batch."""

    def count_stalled(self, cause: str) -> None:
        """The sweeper told what holds a batch up."""

    def count_duplicate(self, handler: str, outcome: str) -> None:
        """A submit made no batch."""

    def note_notify_lag(self, seconds: float) -> None:
        """A change of a batch was notified."""


NO_METERS = Meters()


class SdkMeters(Meters):
    """Counts by the meter of an SDK runtime. Every pair of labels is looked up once: that is most of a count's cost."""

    def __init__(self, meter: MetricMeter) -> None:
        self._counters = {
            metric.name: meter.create_counter(metric.name.removesuffix("_total"), metric.help)
            for metric in (ITEMS_SETTLED, LOST_EXECUTIONS, STALE_WRITES, SWEEPER_ACTIONS, BATCHES_STALLED, DUPLICATES)
        }
        self._attempts = meter.create_histogram_float(ATTEMPT_DURATION.name, ATTEMPT_DURATION.help)
        self._lags = meter.create_histogram_float(NOTIFY_LAG.name, NOTIFY_LAG.help)
        self._bound: dict[tuple[str, tuple[str, ...]], MetricCounter] = {}
        self._bound_attempts: dict[tuple[str, str], MetricHistogramFloat] = {}

    def _count(self, metric: Metric, *values: str, number: int = 1) -> None:
        found = self._bound.get((metric.name, values))
        if found is None:
            labels = dict(zip(metric.labels, values, strict=True))
            found = self._bound[metric.name, values] = self._counters[metric.name].with_additional_attributes(labels)
        found.add(number)

    def count_settled(self, handler: str, state: str) -> None:
        """An item was recorded as completed or failed."""
        self._count(ITEMS_SETTLED, handler, state)

    def note_attempt(self, handler: str, outcome: str, seconds: float) -> None:
        """An attempt ended."""
        found = self._bound_attempts.get((handler, outcome))
        if found is None:
            labels = {"handler": handler, "outcome": outcome}
            found = self._bound_attempts[handler, outcome] = self._attempts.with_additional_attributes(labels)
        found.record(seconds)

    def count_lost(self, handler: str, number: int) -> None:
        """Executions were lost with their worker or child process."""
        if number:
            self._count(LOST_EXECUTIONS, handler, number=number)

    def count_stale(self, handler: str) -> None:
        """A write was refused because another claim has the row."""
        self._count(STALE_WRITES, handler)

    def count_swept(self, action: str) -> None:
        """The sweeper changed or started a batch."""
        self._count(SWEEPER_ACTIONS, action)

    def count_stalled(self, cause: str) -> None:
        """The sweeper told what holds a batch up."""
        self._count(BATCHES_STALLED, cause)

    def count_duplicate(self, handler: str, outcome: str) -> None:
        """A submit made no batch."""
        self._count(DUPLICATES, handler, outcome)

    def note_notify_lag(self, seconds: float) -> None:
        """A change of a batch was notified."""
        self._lags.record(seconds)
