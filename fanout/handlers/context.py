"""What a handler is told about the item that it works on."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from fanout.errors import NoTransaction
from fanout.handlers.transactions import Settlement, Transaction
from fanout.logs import ItemLogger, about


class Cancellation:
    """Tells one running handler to stop: an event for coroutines, a flag for threads, a file for child processes."""

    def __init__(self, file: Path | None = None) -> None:
        # A plain attribute: one thread sets it once, any thread reads it. An Event would cost more than an item.
        self._requested = False
        self._file = file
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    @property
    def requested(self) -> bool:
        """Whether the handler should stop."""
        return self._requested or (self._file is not None and self._file.exists())

    def request(self) -> None:
        """Asks the handler to stop; called on the handlers' loop."""
        self._requested = True
        if self._file is not None:
            self._file.touch()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Returns once a stop is requested; on the handlers' loop only."""
        if self._requested:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters += (waiter,)
        await waiter


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt at one item.

    `attempt` counts from 1 and rises only with charged attempts. `epoch` rises with each retry of the batch.
    """

    batch_id: UUID
    handler: str
    key: str
    item_key: str
    seq: int
    attempt: int
    epoch: int
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False)
    settlement: Settlement | None = field(default=None, repr=False)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on Fanout's database that settles this item: its effects happen exactly once a verdict.

            async with ctx.transaction() as tx:
                await tx.connection.execute("insert into bookings …")
                return tx.complete(result)

        Row and effects are committed together, or, when the block raises, the item has been taken over or the
        database goes away, not at all. For coroutine handlers, and last in them: what follows the block is outside.
        Raises NotCompleted, StaleClaim, DatabaseAway, or NoTransaction where there can be none. A retry of the batch
        repeats the effects.
        """
        if self.settlement is None:
            raise NoTransaction("transactions are for coroutine handlers that run in a worker")
        return self.settlement.open()

    @property
    def settled(self) -> bool:
        """Whether a transaction of the handler's settled the item."""
        return self.settlement is not None and self.settlement.settled

    @property
    def transacting(self) -> bool:
        """Whether a transaction of the handler's is open."""
        return self.settlement is not None and self.settlement.opened

    @property
    def committing(self) -> bool:
        """Whether such a transaction is being committed, or looked up after its answer was lost."""
        return self.settlement is not None and self.settlement.committing

    @property
    def idempotency_key(self) -> str:
        """Stable for this item over all its attempts and retries: hand it to other systems."""
        return f"{self.batch_id}/{self.seq}"

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that carries the ids of this item."""
        return ItemLogger(logging.getLogger(f"fanout.handler.{self.handler}"), self.log_fields)

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every line that is logged while this item's handler runs."""
        return about(
            self.batch_id,
            handler=self.handler,
            key=self.key,
            item_key=self.item_key,
            seq=self.seq,
            attempt=self.attempt,
        )

    @property
    def trace_facts(self) -> dict[str, str | int]:
        """What the span of this attempt tells of it."""
        return {**self.log_fields, "epoch": self.epoch}

    @property
    def cancelled(self) -> bool:
        """True once the handler should end, in every mode: batch cancelled, time limit reached, or worker stopping."""
        return self.cancellation.requested

    async def wait_cancelled(self) -> None:
        """Returns when `cancelled` becomes true; for coroutines on the handlers' loop."""
        await self.cancellation.wait()
