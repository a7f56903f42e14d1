"""Metrics for Prometheus: counters of this process by the Temporal SDK, gauges from rows, and where both are read."""

from fanout.metrics.catalogue import METRICS, Metric
from fanout.metrics.exposition import CONTENT_TYPE, DatabaseGauges, exposition
from fanout.metrics.meters import NO_METERS, Meters
from fanout.metrics.observing import Observation

__all__ = ["CONTENT_TYPE", "METRICS", "NO_METERS", "DatabaseGauges", "Meters", "Metric", "Observation", "exposition"]
