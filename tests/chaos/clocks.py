"""Clocks that tests may step: processes under libfaketime, whose offset stands in a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fanout.devstack.children import Child
from fanout.devstack.postgres import Postgres

LIBRARIES = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


@dataclass(frozen=True)
class Clock:
    """The wall clock of some processes; without libfaketime on the machine it cannot be stepped."""

    file: Path

    @property
    def library(self) -> str | None:
        """libfaketime, where it is installed."""
        return next((path for path in LIBRARIES if Path(path).exists()), None)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to go by this clock; its monotonic clock stays the machine's."""
        if self.library is None:
            return {}
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def step(self, seconds: float) -> None:
        """From about a second from now on the clock is that far from the machine's."""
        draft = self.file.with_suffix(".new")
        draft.write_text(f"{seconds:+.3f}\n")
        draft.replace(self.file)


class ClockedPostgres(Postgres):
    """A PostgreSQL that goes by `clock`."""

    def __init__(self, home: Path, programs: Path, inherited: int, clock: Clock) -> None:
        super().__init__(home, programs, inherited)
        self._clock = clock

    def start(self, preferred_ports: list[int]) -> Child:
        with surrounded_by(self._clock.environment):
            return super().start(preferred_ports)


@contextmanager
def surrounded_by(environment: dict[str, str]) -> Iterator[None]:
    """Children that start inside the block get these variables."""
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]
