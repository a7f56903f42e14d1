"""A worker that hears the states of its batches a second late."""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from fanout import Context, handler
from fanout.states import BatchStatus
from fanout.store import WorkStore
from tests.handlers.swept import note

LATE_SECONDS = 1.0

read_currency = WorkStore.read_currency


async def read_late(store: WorkStore, batch_ids: Iterable[UUID]) -> dict[UUID, tuple[BatchStatus, int]]:
    """As the store does, and then some time passes."""
    found = await read_currency(store, batch_ids)
    await asyncio.sleep(LATE_SECONDS)
    return found


WorkStore.read_currency = read_late  # type: ignore[assignment, method-assign]


@handler("late.work")
async def work(payload: float, ctx: Context) -> None:
    """Takes so many seconds, and notes that it has started."""
    note(ctx)
    await asyncio.sleep(payload)
