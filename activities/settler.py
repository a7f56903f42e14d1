"""Group commit: what items came to is written together, by one task for the whole worker.

While one statement runs, the next group gathers: at once when the worker is idle, in hundreds when items are fast. A
row whose write fails because the database is away stays here and is written again; it is never run again for that.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from activities.attempt import Token
from fanout.handlers.calls import RESULT_CODE
from fanout.handlers.outcomes import describe
from fanout.logs import about
from fanout.points import FaultPoint, FaultPoints, before
from fanout.store import OUTAGE, UNSTORABLE, Completion, Verdict, WorkStore

GROUP_ROWS = 500
GROUP_BYTES = 4_000_000
PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 2.0

log = logging.getLogger("fanout.settler")


class Unstorable(Exception):
    """The stored error of a row whose own result or error PostgreSQL refused."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"PostgreSQL cannot hold what this item would {kind} with")


@dataclass(slots=True)
class Entry:
    """A row to write for the item of `token`."""

    token: Token
    row: Completion | Verdict
    settles: bool

    @property
    def kind(self) -> str:
        """Which statement writes it."""
        if isinstance(self.row, Completion):
            return "complete"
        return "fail" if self.settles else "release"

    @property
    def size(self) -> int:
        """About how many bytes it carries."""
        return len(self.row.result) if isinstance(self.row, Completion) else 1_000


class Settler:
    """Writes entries in groups until all are written; counters go to one of a batch's 16 slots.

    `on_written` learns whether a row was recorded: False means that its claim was stale.
    """

    def __init__(
        self, store: WorkStore, on_written: Callable[[Entry, bool], None], points: FaultPoints | None = None
    ) -> None:
        self._store = store
        self._points = points
        self._on_written = on_written
        self._slot = random.randrange(16)
        self._queues: dict[tuple[UUID, str], list[Entry]] = {}
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._run())

    def put(self, entry: Entry) -> None:
        """Takes over the duty to write `entry`."""
        self._queues.setdefault((entry.token.attempt.batch_id, entry.kind), []).append(entry)
        self._idle.clear()
        self._news.set()

    async def drained(self) -> None:
        """Returns when everything is written."""
        await self._idle.wait()

    async def stop(self) -> int:
        """Stops writing; answers how many entries are left unwritten."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return sum(len(queue) for queue in self._queues.values())

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queues:
                for batch_id, kind in list(self._queues):
                    await self._flush(batch_id, kind)
            self._idle.set()

    async def _flush(self, batch_id: UUID, kind: str) -> None:
        """Writes one group; it leaves the queue only when the database has answered."""
        queue = self._queues[batch_id, kind]
        group = _head(queue)
        recorded = await self._write(batch_id, kind, group)
        del queue[: len(group)]
        if not queue:
            del self._queues[batch_id, kind]
        for entry in group:
            self._on_written(entry, entry.row.seq in recorded)

    async def _write(self, batch_id: UUID, kind: str, group: Sequence[Entry]) -> set[int]:
        pause = PAUSE_SECONDS
        while True:
            try:
                return await self._write_once(batch_id, kind, group)
            except UNSTORABLE as error:
                return await self._isolate(batch_id, kind, group, error)
            except OUTAGE as error:
                text = "the database is away (%s); %d rows wait to be written"
                log.warning(text, type(error).__name__, len(group), extra=about(batch_id))
            except Exception:
                # Nothing that a row could be blamed for: a schema that changed under us, or a fault of ours.
                log.exception("%d rows could not be written and wait", len(group), extra=about(batch_id))
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    @before(FaultPoint.ITEM_ENDED)
    async def _write_once(self, batch_id: UUID, kind: str, group: Sequence[Entry]) -> set[int]:
        rows = [entry.row for entry in group]
        if kind == "complete":
            completions = [row for row in rows if isinstance(row, Completion)]
            return await self._store.complete(batch_id, completions, self._slot)
        verdicts = [row for row in rows if isinstance(row, Verdict)]
        if kind == "release":
            return await self._store.release(batch_id, verdicts, self._slot)
        recorded = await self._store.fail(batch_id, verdicts, self._slot)
        # After their commit, in a statement of its own: items of one batch must not queue for its row. Where it fails
        # both are repeated, which is harmless: no range returns before its failures were held against the budget.
        await self._store.trip_budget(batch_id)
        return recorded

    async def _isolate(self, batch_id: UUID, kind: str, group: Sequence[Entry], error: BaseException) -> set[int]:
        """One row of the group holds what PostgreSQL refuses: writes the others, and fails that one."""
        if len(group) > 1:
            recorded: set[int] = set()
            for entry in group:
                recorded |= await self._write(batch_id, kind, [entry])
            return recorded
        row, token = group[0].row, group[0].token
        fields = token.attempt.log_fields(token.item)
        log.error("PostgreSQL refused what the item would %s with: %s", kind, type(error).__name__, extra=fields)
        if isinstance(row, Verdict) and row.error is not None and row.error["code"] == RESULT_CODE:
            return set()
        described = describe(Unstorable(kind), RESULT_CODE, token.item.attempts + 1)
        verdict = Verdict(row.seq, row.claim_id, described, attempts=1)
        return await self._write(batch_id, "fail", [replace(group[0], row=verdict, settles=True)])


def _head(queue: list[Entry]) -> list[Entry]:
    """The first entries that fit one statement, one row never twice."""
    size = 0
    seen: set[int] = set()
    for count, entry in enumerate(queue):
        size += entry.size
        full = count == GROUP_ROWS or (count > 0 and size > GROUP_BYTES)
        if full or entry.row.seq in seen:
            return queue[:count]
        seen.add(entry.row.seq)
    return queue[:]
