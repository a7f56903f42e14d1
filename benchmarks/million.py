"""`million`: a million items from a generator, in a process of its own. Memory and histories must stay small."""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import ROOT, BenchmarkFailed, Rig, say
from fanout.client import BatchHandle

ITEMS = 1_000_000
LEVEL_ITEMS = 100_000
SAMPLE_SECONDS = 0.5
WORKER_GROWTH_MB = 50.0
SUBMITTER_MB = 200.0
HISTORY_EVENTS = 20_000
PROMISE = Limit(1.0)
SAY_SAMPLES = 10


@dataclass(frozen=True)
class Sample:
    """A worker's memory once so many items were settled; `peak_mb` is the highest since it started."""

    settled: int
    now_mb: float
    peak_mb: float


@dataclass(frozen=True)
class Submitted:
    """What the submitting process says at its end."""

    batch_id: str
    peak_mb: float


@dataclass(frozen=True)
class Million:
    """What one run found."""

    seconds: float
    submit_seconds: float
    submitter_mb: float
    level: Sample
    peak_after_mb: float
    histories: list[int]

    @property
    def shares(self) -> dict[str, float]:
        """How much of each promised limit was used."""
        return {
            "worker_growth": (self.peak_after_mb - self.level.now_mb) / WORKER_GROWTH_MB,
            "submitter_peak": self.submitter_mb / SUBMITTER_MB,
            "longest_history": max(self.histories) / HISTORY_EVENTS,
        }


def cases(options: Options) -> list[Case]:
    """One line; the level of memory is taken at a tenth of the items."""
    items = options.items or ITEMS
    return [Case(f"million {items:,}", partial(measure, items=items, runs=options.pairs or 1))]


async def measure(rig: Rig, items: int, runs: int) -> Measured:
    """The ratio is the largest share of a promised limit that a run used."""
    worker = await rig.start_worker()
    found = []
    for _ in range(runs):
        found.append(await run_once(rig, worker.pid, items))
        say(f"{found[-1].seconds:.1f} s, shares of the limits: {found[-1].shares}")
    return Measured(
        name="million",
        compares=f"the largest share used of: {WORKER_GROWTH_MB:g} MB more for the worker after a tenth of the items, "
        f"{SUBMITTER_MB:g} MB for the submitting process, {HISTORY_EVENTS:,} events in a history",
        items=items,
        concurrency=rig.settings.concurrency,
        ratios=[max(one.shares.values()) for one in found],
        sides={"fanout": [one.seconds for one in found], "submit alone": [one.submit_seconds for one in found]},
        limit=PROMISE,
        details={
            "shares": [{name: round(share, 3) for name, share in one.shares.items()} for one in found],
            "worker_mb_at_level": [one.level.now_mb for one in found],
            "level_at_items": [one.level.settled for one in found],
            "worker_peak_mb_after": [one.peak_after_mb for one in found],
            "submitter_peak_mb": [one.submitter_mb for one in found],
            "histories": [len(one.histories) for one in found],
            "longest_history_events": [max(one.histories) for one in found],
        },
    )


async def run_once(rig: Rig, worker_pid: int, items: int) -> Million:
    """Submits from a child process and samples the worker until the batch is closed."""
    began = time.monotonic()
    submitted = await submit_aside(rig, items)
    submit_seconds = time.monotonic() - began
    say(f"submitted in {submit_seconds:.1f} s, the submitter's peak was {submitted.peak_mb} MB")
    batch = await rig.client.get(UUID(submitted.batch_id))
    sampling = asyncio.create_task(sample(rig, batch, worker_pid, items // 10))
    await rig.finish(batch)
    seconds = time.monotonic() - began
    level, peak_after_mb = await sampling
    histories = await read_histories(rig, batch)
    return Million(seconds, submit_seconds, submitted.peak_mb, level, peak_after_mb, histories)


async def submit_aside(rig: Rig, items: int) -> Submitted:
    """Runs `benchmarks.submitter`."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.submitter", str(items)),
        cwd=ROOT,
        env=rig.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await child.communicate()
    if child.returncode != 0:
        raise BenchmarkFailed(f"the submitting process ended with {child.returncode}")
    return Submitted(**json.loads(answer))


async def sample(rig: Rig, batch: BatchHandle, pid: int, level_items: int) -> tuple[Sample, float]:
    """The worker's memory at `level_items`, and its peak from there on; returns once the batch is closed."""
    level: Sample | None = None
    highest_mb = 0.0
    for number in range(sys.maxsize):
        row = await batch.read()
        last = Sample(row.total - row.open, *memory_mb(pid))
        if level is None and (last.settled >= level_items or row.closed):
            level = last
        if level is not None:
            highest_mb = max(highest_mb, last.now_mb)
        if number % SAY_SAMPLES == 0:
            say(f"{last.settled:,} items settled, the worker has {last.now_mb} MB")
        if row.closed:
            break
        await asyncio.sleep(SAMPLE_SECONDS)
    assert level is not None
    # What the kernel remembers is exact where it rose after the level was taken; else the samples have to do.
    return level, last.peak_mb if last.peak_mb > level.peak_mb else highest_mb


def memory_mb(pid: int | str = "self") -> tuple[float, float]:
    """A process's resident memory now and at its peak, in megabytes of a million bytes."""
    fields = dict(_status(pid))
    return fields["VmRSS"], fields["VmHWM"]


def _status(pid: int | str) -> Iterator[tuple[str, float]]:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = row.partition(":")
        if name in ("VmRSS", "VmHWM"):
            yield name, round(int(value.split()[0]) * 1024 / 1_000_000, 1)


async def read_histories(rig: Rig, batch: BatchHandle) -> list[int]:
    """The number of events of every run in this namespace, once the batch's own workflow has ended."""
    temporal = rig.client.temporal
    await temporal.get_workflow_handle((await batch.read()).workflow_id).result()
    return [
        (await temporal.get_workflow_handle(run.id, run_id=run.run_id).describe()).history_length
        async for run in temporal.list_workflows()
    ]
