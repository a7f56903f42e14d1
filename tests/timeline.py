"""What tests with `tests.handlers.timed` share: when handlers started and ended, what a closed batch has to show."""

from bisect import insort
from collections import defaultdict
from pathlib import Path
from uuid import UUID

from fanout import BatchHandle, Status
from fanout.store.audit import count_recorded_twice, count_settles
from tests.support import Deployment, WorkerProcess, eventually

HANDLERS = "tests.handlers.timed"
CLOSED = "select count(*) from fanout.events where batch_id = $1 and kind = 'closed'"


async def start_worker(fanout: Deployment, *options: str, handlers: str = HANDLERS, **settings: str) -> WorkerProcess:
    return await fanout.start_worker(*options, handlers=handlers, FANOUT_TEST_LEDGER=str(fanout.folder), **settings)


class Timeline:
    """The handlers' notes, read on from where the last reading ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._notes: dict[tuple[str, UUID], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def moments(self, word: str, batch: BatchHandle) -> dict[int, list[float]]:
        """When the batch's items noted `word`, by seq, in order."""
        for file in self._folder.glob("timeline-*"):
            self._read_on(file)
        return self._notes[word, batch.batch_id]

    def flat(self, word: str, batch: BatchHandle) -> list[float]:
        """All moments of all items, in order."""
        return sorted(moment for moments in self.moments(word, batch).values() for moment in moments)

    async def noted(self, word: str, batch: BatchHandle, number: int = 1, timeout: float = 60) -> list[float]:
        """Waits until `word` was noted so often."""

        async def enough() -> list[float]:
            found = self.flat(word, batch)
            return found if len(found) >= number else []

        return await eventually(enough, timeout)

    def _read_on(self, file: Path) -> None:
        start = self._read.get(file, 0)
        with file.open("rb") as lines:
            lines.seek(start)
            # A line that is being written is left for the next reading.
            text = lines.read().rpartition(b"\n")[0]
        self._read[file] = start + len(text) + bool(text)
        for line in text.decode().splitlines():
            word, batch, seq, moment = line.split()
            insort(self._notes[word, UUID(batch)][int(seq)], float(moment))


def most_at_once(timeline: Timeline, batch: BatchHandle) -> int:
    """The largest number of handlers that ran at one moment."""
    steps = [(moment, 1) for moment in timeline.flat("start", batch)]
    steps += [(moment, -1) for moment in timeline.flat("end", batch)]
    most = running = 0
    for _, step in sorted(steps):
        running += step
        most = max(most, running)
    return most


async def assert_sound(fanout: Deployment, batch: BatchHandle) -> Status:
    """Closed once, every row settled once by the audit, results where they belong, and nothing that `verify` finds."""
    status = await batch.progress()
    assert status.closed
    assert status.settled == status.total
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await count_settles(fanout.pool, batch.batch_id) == status.total
    assert await fanout.pool.fetchval(CLOSED, batch.batch_id) == 1
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    async for row in batch.results():
        assert (row.result is not None) == (row.status == "completed")
        assert (row.error is not None) == (row.status != "completed")
    return status
