"""Gauges from rows in Prometheus' text format, read at most every few seconds however often they are asked for."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from fanout.metrics.catalogue import (
    BATCHES_OPEN,
    DATABASE_UP,
    DUPLICATES,
    ITEMS_OPEN,
    LAST_SWEEP,
    OLDEST_BATCH,
    OLDEST_CLAIM,
    WORKERS,
    Metric,
)
from fanout.store import Gauges, GaugeStore

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CACHE_SECONDS = 5.0
READ_SECONDS = 2.0
"""After so long the rows count as not to be read: whoever scrapes gives up soon, and is to get the counters."""
MOST_HANDLERS = 100
OTHER = "(others)"
"""What handlers beyond the first 100 are counted as: anybody can submit for names that no worker has."""

Series = Mapping[tuple[str, ...], float]

log = logging.getLogger("fanout.metrics")


class DatabaseGauges:
    """What the rows say, as of a few seconds ago at most. Any number of callers share one look."""

    def __init__(self, store: GaugeStore, seconds: float = CACHE_SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._looking = asyncio.Lock()
        self._text = ""
        self._fresh_until = 0.0

    async def text(self) -> str:
        """The gauges; of a database that does not answer only that it does not. Never raises for that."""
        async with self._looking:
            if time.monotonic() >= self._fresh_until:
                self._text = await self._read()
                self._fresh_until = time.monotonic() + self._seconds
            return self._text

    async def _read(self) -> str:
        try:
            async with asyncio.timeout(READ_SECONDS):
                gauges = await self._store.read()
        except Exception as error:
            # Whatever it is, the process's own counters are to be told.
            log.warning("the gauges could not be read: %s", type(error).__name__)
            return render(DATABASE_UP, {(): 0})
        return render(DATABASE_UP, {(): 1}) + "".join(render(metric, series) for metric, series in measure(gauges))


class Observed(Protocol):
    """A client, as far as metrics go."""

    @property
    def gauges(self) -> DatabaseGauges:
        """Its gauges from rows."""

    @property
    def suppressed(self) -> Mapping[tuple[str, str], int]:
        """How many submits of this process made no batch, by handler and outcome."""


async def exposition(client: Observed) -> str:
    """What `GET /metrics` of a process with a client answers: gauges from rows, and the duplicates it suppressed."""
    suppressed: dict[tuple[str, ...], float] = {
        (handler, outcome): number for (handler, outcome), number in client.suppressed.items()
    }
    return await client.gauges.text() + render(DUPLICATES, suppressed)


def measure(gauges: Gauges) -> Iterable[tuple[Metric, Series]]:
    """The series of each gauge."""
    names = [*dict.fromkeys([*(held.handler for held in gauges.held), *(work.handler for work in gauges.open)])]
    shown = {name: name if index < MOST_HANDLERS else OTHER for index, name in enumerate(names)}
    items: dict[str, int] = {}
    batches: dict[tuple[str, ...], float] = {}
    ages: dict[tuple[str, ...], float] = {}
    for work in gauges.open:
        name = shown[work.handler]
        items[name] = items.get(name, 0) + work.items
        batches[name, work.status] = batches.get((name, work.status), 0) + work.batches
        ages[name,] = max(ages.get((name,), 0.0), work.oldest_seconds)
    yield BATCHES_OPEN, batches
    yield OLDEST_BATCH, ages
    held: dict[str, int] = {}
    workers: dict[tuple[str, ...], float] = {}
    claims: dict[tuple[str, ...], float] = {}
    for each in gauges.held:
        name = shown[each.handler]
        held[name] = held.get(name, 0) + each.items
        workers[name,] = workers.get((name,), 0) + each.workers
        claims[name,] = max(claims.get((name,), 0.0), each.oldest_seconds or 0.0)
    yield WORKERS, workers
    yield OLDEST_CLAIM, claims
    yield ITEMS_OPEN, _split(items, held)
    yield LAST_SWEEP, {} if gauges.last_sweep_seconds is None else {(): gauges.last_sweep_seconds}


def _split(items: Mapping[str, int], held: Mapping[str, int]) -> Series:
    """What workers say lags behind the rows by a second: never more than is open."""
    split: dict[tuple[str, ...], float] = {}
    for name in {**items, **held}:
        processing = min(held.get(name, 0), items.get(name, 0))
        split[name, "processing"] = processing
        split[name, "pending"] = items.get(name, 0) - processing
    return split


def render(metric: Metric, series: Series) -> str:
    """One metric in the text format; nothing without a series."""
    if not series:
        return ""
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for values, number in sorted(series.items()):
        labels = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(metric.labels, values, strict=True))
        lines.append(f"{metric.name}{'{' + labels + '}' if labels else ''} {number:.10g}")
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
