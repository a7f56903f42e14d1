"""What keeps a batch or an item from running, as far as rows tell it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fanout.errors import UnknownItem
from fanout.states import ItemStatus
from fanout.store.pool import SCAN_SECONDS, Pool
from fanout.store.statements import STATEMENTS


@dataclass(frozen=True, slots=True)
class Standing:
    """The open rows of a batch: run by live workers, claimed by silent ones, due now, or due later, the first `due_at`.

    `holders` are up to three of the live workers that run some, `error_type` is one of those that are waited out.
    """

    running: int
    silent: int
    due: int
    waiting: int
    due_at: datetime | None
    error_type: str | None
    holders: list[str]


@dataclass(frozen=True, slots=True)
class Crew:
    """The slots of the live workers that know a handler, and how many of them are taken, by any batch's items."""

    slots: int
    busy: int


@dataclass(frozen=True, slots=True)
class ItemStanding:
    """One item; `due_at` is given while it lies ahead, `worker` is who claimed it last, `live` whether that one is."""

    status: ItemStatus
    attempts: int
    code: str | None
    error_type: str | None
    claimed_at: datetime | None
    settled_at: datetime | None
    due_at: datetime | None
    worker: str | None
    live: bool


class StandingStore:
    """Reads; none of them locks anything."""

    def __init__(self, pool: Pool, stale_after: timedelta) -> None:
        self._pool = pool
        self._stale_after = stale_after

    async def read_standing(self, batch_id: UUID) -> Standing:
        """What the batch's open rows wait for: it looks at each of them."""
        record = await self._pool.fetchrow(
            STATEMENTS["read_standing"], batch_id, self._stale_after, timeout=SCAN_SECONDS
        )
        assert record is not None
        return Standing(**dict(record))

    async def read_slots(self, handler: str) -> Crew:
        """Whether the workers that know the handler have a free slot; it stops looking once all are found taken."""
        record = await self._pool.fetchrow(STATEMENTS["read_slots"], handler, self._stale_after, timeout=SCAN_SECONDS)
        assert record is not None
        return Crew(**dict(record))

    async def read_item_standing(self, batch_id: UUID, item_key: str) -> ItemStanding:
        """One item; raises UnknownItem."""
        record = await self._pool.fetchrow(STATEMENTS["read_item_standing"], batch_id, item_key, self._stale_after)
        if record is None:
            raise UnknownItem(batch_id, item_key)
        return ItemStanding(**{**dict(record), "status": ItemStatus(record["status"])})
