"""What a benchmark found, and the JSON line that tells it."""

import os
import platform
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import median
from typing import Any

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

from benchmarks.rig import ROOT, Rig


@dataclass(frozen=True)
class Limit:
    """A promise about the median ratio."""

    value: float
    at_least: bool = False

    def kept_by(self, ratio: float) -> bool:
        """Whether this ratio keeps it."""
        return ratio >= self.value if self.at_least else ratio <= self.value


@dataclass(frozen=True)
class Measured:
    """What one benchmark found; `sides` holds the seconds of both sides, one of each for every pair."""

    name: str
    compares: str
    items: int
    concurrency: int
    ratios: Sequence[float]
    sides: dict[str, Sequence[float]]
    limit: Limit | None
    holds: bool = True
    """Whether everything is kept that was promised beside the ratio."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What the command line asks for; None leaves it to the benchmark."""

    pairs: int | None = None
    items: int | None = None


@dataclass(frozen=True)
class Case:
    """One line to be: it gets a deployment of its own."""

    title: str
    measure: Callable[[Rig], Awaitable[Measured]]


def line(measured: Measured, load_before: tuple[float, ...], facts: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of one benchmark."""
    ratio = median(measured.ratios)
    limit = measured.limit
    return {
        "name": measured.name,
        "compares": measured.compares,
        "items": measured.items,
        "concurrency": measured.concurrency,
        "ratio": round(ratio, 4),
        "ratios": [round(each, 4) for each in measured.ratios],
        "spread": [round(min(measured.ratios), 4), round(max(measured.ratios), 4)],
        "limit": None if limit is None else limit.value,
        "limit_is": None if limit is None else "at least" if limit.at_least else "at most",
        "kept": measured.holds and (limit is None or limit.kept_by(ratio)),
        "sides": {name: side(seconds, measured.items) for name, seconds in measured.sides.items()},
        **measured.details,
        "load_before": [round(each, 2) for each in load_before],
        "load_after": [round(each, 2) for each in os.getloadavg()],
        **facts,
    }


def side(seconds: Sequence[float], items: int) -> dict[str, Any]:
    """One side's seconds, and the items a second of its median."""
    return {"seconds": [round(each, 3) for each in seconds], "items_per_second": round(items / median(seconds))}


async def read_facts(rig: Rig) -> dict[str, Any]:
    """Where and with what this ran."""
    system = await rig.client.temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    return {
        "cpus": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "temporalio": version("temporalio"),
            "asyncpg": version("asyncpg"),
            "postgresql": await rig.pool.fetchval("show server_version"),
            "temporal_server": system.server_version,
        },
        "commit": commit(),
    }


def commit() -> str:
    """The commit that is checked out, or "unknown" where git or its folder is missing."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
