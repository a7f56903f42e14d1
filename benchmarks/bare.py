"""The row limit: the store's own statements in a bare loop, without Temporal, handlers or deadlines."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID, uuid4

from benchmarks.rig import BenchmarkFailed, Rig
from fanout.client.items import CHUNK_ITEMS
from fanout.store import BatchStore, ClaimedItem, Completion, NewBatch, Pool, StoredItem, WorkStore, connect_pool

GROUP_ROWS = 500
AHEAD_GROUPS = 4
TRIALS = 2

Form = Callable[["Bare", UUID, int], Awaitable[None]]


class Bare:
    """Submits, claims and settles on two connections; only rows, no work."""

    def __init__(self, claims: Pool, settles: Pool) -> None:
        stale_after = timedelta(seconds=10)
        self.batches = BatchStore(claims, stale_after)
        self._claims = WorkStore(claims, stale_after)
        self._settles = WorkStore(settles, stale_after)
        self._worker_id = uuid4()

    async def run(self, form: Form, items: int) -> float:
        """Seconds from the first COPY to the last settle. Opening counts, closing does not: the limit is the rows'."""
        batch_id = uuid4()
        workflow_id = f"bare/{batch_id}"
        batch = NewBatch(batch_id, "bench.bare", str(batch_id), workflow_id, None, {})
        began = time.monotonic()
        async with self.batches.submitting() as submission:
            await submission.lock_key(batch.handler, batch.key, batch_id)
            for lo in range(0, items, CHUNK_ITEMS):
                chunk = [StoredItem(str(seq), "null") for seq in range(lo, min(items, lo + CHUNK_ITEMS))]
                await submission.copy_items(batch_id, lo, chunk)
            await submission.insert_batch(batch, items, bytes(32))
        await self.batches.open_batch(batch_id, workflow_id)
        await form(self, batch_id, items)
        seconds = time.monotonic() - began
        if not await self.batches.close_batch(batch_id, 1, timedelta(seconds=30)):
            raise BenchmarkFailed("the bare loop left rows open")
        return seconds

    async def claim(self, batch_id: UUID, lo: int, items: int) -> list[ClaimedItem]:
        """The next group."""
        span = (lo, min(items, lo + GROUP_ROWS))
        claim = await self._claims.claim(batch_id, 1, span, GROUP_ROWS, uuid4(), self._worker_id)
        return claim.items

    async def settle(self, batch_id: UUID, items: list[ClaimedItem]) -> None:
        """Completes a group."""
        await self._settles.complete(batch_id, [Completion(item.seq, item.claim_id, "null") for item in items], 0)


async def one_after_another(bare: Bare, batch_id: UUID, items: int) -> None:
    """Claim, settle, claim, settle."""
    for lo in range(0, items, GROUP_ROWS):
        await bare.settle(batch_id, await bare.claim(batch_id, lo, items))


async def pipelined(bare: Bare, batch_id: UUID, items: int) -> None:
    """Claims on one connection while the groups before are settled on the other."""
    claimed: asyncio.Queue[list[ClaimedItem]] = asyncio.Queue(AHEAD_GROUPS)

    async def claim_all() -> None:
        for lo in range(0, items, GROUP_ROWS):
            await claimed.put(await bare.claim(batch_id, lo, items))

    async with asyncio.TaskGroup() as group:
        group.create_task(claim_all())
        for _ in range(0, items, GROUP_ROWS):
            await bare.settle(batch_id, await claimed.get())


FORMS: dict[str, Form] = {"one after another": one_after_another, "pipelined on two connections": pipelined}


@asynccontextmanager
async def open_bare(rig: Rig) -> AsyncIterator[Bare]:
    """Two connections of its own to the same database."""
    assert rig.settings.database_url is not None
    url = rig.settings.database_url.get_secret_value()
    claims = await connect_pool(url, purpose="bare claims", size=1)
    settles = await connect_pool(url, purpose="bare settles", size=1)
    try:
        yield Bare(claims, settles)
    finally:
        claims.terminate()
        settles.terminate()


async def faster_form(bare: Bare, items: int) -> str:
    """The name of the form whose best run is faster here and now, with that many items; they take turns."""
    best = dict.fromkeys(FORMS, math.inf)
    for _ in range(TRIALS):
        for name, form in FORMS.items():
            best[name] = min(best[name], await bare.run(form, items))
    return min(best, key=lambda name: best[name])
