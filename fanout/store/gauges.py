"""The statements of metrics: bounded looks at what is open and who holds it."""

from dataclasses import dataclass
from datetime import timedelta

from fanout.states import BatchStatus
from fanout.store.pool import Pool
from fanout.store.statements import STATEMENTS

MOST_BATCHES = 5_000
GAUGE_SECONDS = 5.0
"""A look that takes longer is given up: it must not be a load of its own on a database that has one."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """The open batches of one handler in one state, how many of their items are open, and the age of the oldest."""

    handler: str
    status: BatchStatus
    batches: int
    items: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class HeldWork:
    """The live workers that have a handler, the items that they hold, and the age of their oldest claim."""

    handler: str
    workers: int
    items: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Gauges:
    """One look; `last_sweep_seconds` is None before the first pass of the sweeper."""

    open: list[OpenWork]
    held: list[HeldWork]
    last_sweep_seconds: float | None


class GaugeStore:
    """Reads alone, and bounded: of more than 5,000 open batches it looks at the oldest."""

    def __init__(self, pool: Pool, stale_after: timedelta) -> None:
        self._pool = pool
        self._stale_after = stale_after

    async def read(self) -> Gauges:
        """What is open now, and who holds it."""
        async with self._pool.acquire() as connection:
            opened = await connection.fetch(STATEMENTS["read_open"], MOST_BATCHES, timeout=GAUGE_SECONDS)
            held = await connection.fetch(STATEMENTS["read_held"], self._stale_after, timeout=GAUGE_SECONDS)
            sweep = await connection.fetchrow(STATEMENTS["read_last_sweep"], timeout=GAUGE_SECONDS)
        return Gauges(
            [OpenWork(**{**dict(record), "status": BatchStatus(record["status"])}) for record in opened],
            [HeldWork(**dict(record)) for record in held],
            None if sweep is None else float(sweep["age_seconds"]),
        )
