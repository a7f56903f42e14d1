"""The database side of handlers' own transactions: a pool of their own, and the settle that ends them."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import asyncpg

from fanout.errors import DatabaseAway, ServerUnreachable
from fanout.logs import about
from fanout.points import FaultPoint, FaultPoints, after
from fanout.store.faults import OUTAGE
from fanout.store.pool import Connection, Pool, connect_pool
from fanout.store.rows import Completion
from fanout.store.statements import STATEMENTS
from fanout.store.work import settle_arguments

RETRY_SECONDS = 0.5
ABSENCE: tuple[type[BaseException], ...] = (*OUTAGE, ServerUnreachable)

log = logging.getLogger("fanout.effects")


class Effects:
    """Connections for `ctx.transaction()`; made at first use, on the loop that uses them."""

    def __init__(self, url: str, size: int, points: FaultPoints | None = None) -> None:
        self._url = url
        self._points = points
        self._size = size
        self._pool: Pool | None = None
        self._connecting = asyncio.Lock()
        self._slot = random.randrange(16)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one transaction; raises DatabaseAway where none can be had."""
        async with AsyncExitStack() as held:
            try:
                pool = await self._connected()
                connection = await held.enter_async_context(pool.acquire())
            except ABSENCE as error:
                raise DatabaseAway(type(error).__name__) from error
            yield connection

    async def settle(self, connection: Connection, batch_id: UUID, row: Completion) -> bool:
        """Completes a row inside the caller's transaction; False when its claim is stale."""
        arguments = settle_arguments([row], self._slot)
        return bool(await connection.fetch(STATEMENTS["complete"], batch_id, *arguments))

    @after(FaultPoint.TRANSACTION_COMMITTED)
    async def commit(self, transaction: asyncpg.transaction.Transaction) -> None:
        """Commits the caller's transaction."""
        await transaction.commit()

    async def is_settled(self, batch_id: UUID, seq: int, claim_id: UUID) -> bool:
        """Whether a COMMIT whose answer was lost took place: waits for its end, and for the database to be back."""
        while True:
            try:
                pool = await self._connected()
                return bool(await pool.fetchval(STATEMENTS["is_settled"], batch_id, seq, claim_id))
            except ABSENCE as error:
                log.warning("looking up a commit: %s", type(error).__name__, extra=about(batch_id, seq=seq))
                await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1))

    async def _connected(self) -> Pool:
        async with self._connecting:
            if self._pool is None:
                self._pool = await connect_pool(self._url, purpose="effects", size=self._size)
        return self._pool

    def terminate(self) -> None:
        """Ends every connection at once."""
        if self._pool is not None:
            self._pool.terminate()
