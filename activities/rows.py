"""What an attempt asks of its range's rows, and asks again until the database answers."""

import asyncio
import logging
import random
from typing import TYPE_CHECKING
from uuid import UUID

from fanout.contracts import RangeInput
from fanout.logs import about
from fanout.store import OUTAGE, Claim, ClaimedItem, Remainder

if TYPE_CHECKING:
    from activities.engine import Engine

OUTAGE_SECONDS = 1.0

log = logging.getLogger("fanout.attempt")


class RangeRows:
    """The rows of one range, as one worker may claim them. Only a draining worker gives up on a silent database."""

    def __init__(self, engine: "Engine", work: RangeInput) -> None:
        self._engine = engine
        self._work = work
        self._span = (work.span.lo, work.span.hi)
        self._fields = about(work.batch_id, handler=work.handler, key=work.key)

    async def claim(self, claim_id: UUID, span: tuple[int, int], rows: int, probe: bool) -> Claim:
        """Claims up to `rows` rows of `span`; a claim whose answer was lost is read back by its id."""
        work, store, worker_id = self._work, self._engine.store, self._engine.worker_id
        try:
            claim = await store.claim(work.batch_id, work.epoch, span, rows, claim_id, worker_id, probe)
            self._engine.meters.count_lost(work.handler, claim.lost)
            return claim
        except OUTAGE as error:
            log.warning("the answer to a claim was lost (%s)", type(error).__name__, extra=self._fields)
            return Claim(True, await self._read_back(claim_id, span))

    async def _read_back(self, claim_id: UUID, span: tuple[int, int]) -> list[ClaimedItem]:
        while True:
            await self._pause()
            try:
                return await self._engine.store.read_claim(self._work.batch_id, span, claim_id)
            except OUTAGE as error:
                log.warning("the database is away (%s)", type(error).__name__, extra=self._fields)
                if self._engine.draining:
                    return []

    async def of_claim(self, claim_id: UUID) -> list[ClaimedItem]:
        """The rows that a claim of this worker holds; raises what the database raises."""
        return await self._engine.store.read_claim(self._work.batch_id, self._span, claim_id)

    async def remainder(self) -> Remainder:
        """What is open, and why."""
        while True:
            try:
                return await self._engine.store.read_remainder(self._work.batch_id, self._span, self._engine.worker_id)
            except OUTAGE as error:
                log.warning("the database is away (%s)", type(error).__name__, extra=self._fields)
                if self._engine.draining:
                    return Remainder(1, self._span[0], 0, None, None, None, [])
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(OUTAGE_SECONDS * random.uniform(0.2, 1))
