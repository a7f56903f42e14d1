"""`ctx.transaction()`: a handler's own rows and the settling of its item in one commit, or neither."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import asyncpg

from fanout.errors import DatabaseAway, NotCompleted, NoTransaction, StaleClaim, TransactionEnded
from fanout.finishing import finish
from fanout.store import AWAY, OUTAGE, Completion, Connection, Effects


class Transaction:
    """An open transaction on Fanout's database.

    `connection` is asyncpg's: whatever is executed on it is committed together with the item's completion.
    """

    def __init__(self, connection: Connection, encode: Callable[[Any], str]) -> None:
        self.connection = connection
        self.result: str | None = None
        self._encode = encode

    def complete(self, result: Any = None) -> Any:
        """Notes the item's result, and answers it; row and effects are written when the block is left.

        Raises UnstorableValue for a result that cannot be stored: the item then fails, and nothing is written.
        """
        self.result = self._encode(result)
        return result


class Settlement:
    """One attempt's right to settle its item by a transaction of its handler's."""

    def __init__(
        self, effects: Effects, batch_id: UUID, seq: int, claim_id: UUID, encode: Callable[[Any], str]
    ) -> None:
        self.claim_id = claim_id
        self.settled = False
        self.committing = False
        self.opened = False
        self._effects = effects
        self._batch_id = batch_id
        self._seq = seq
        self._encode = encode

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Transaction]:
        """The transaction; leaving the block commits it with the item's completion, or raises and undoes it all."""
        if self.settled:
            raise NoTransaction("this item is settled: it has one transaction")
        async with self._effects.connection() as connection:
            transaction = connection.transaction()
            try:
                await transaction.start()
                self.opened = True
                tx = Transaction(connection, self._encode)
                yield tx
                self.opened = False
                if tx.result is None:
                    raise NotCompleted
                if not connection.is_in_transaction():
                    raise TransactionEnded
            except BaseException as error:
                # A block that nobody leaves ends when it is collected: for the handler it is open still.
                self.opened = isinstance(error, GeneratorExit)
                await _undo(transaction)
                if isinstance(error, AWAY) or (isinstance(error, Exception) and _is_gone(connection)):
                    raise DatabaseAway(type(error).__name__) from error
                raise
            # Cancelled between settling and COMMIT, the handler must still learn what came of it.
            await finish(self._commit(connection, transaction, tx.result))

    async def _commit(self, connection: Connection, transaction: asyncpg.transaction.Transaction, result: str) -> None:
        """Settles last of all, so that the counters are locked for a moment only; a lost COMMIT is looked up."""
        self.committing = True
        try:
            row = Completion(self._seq, self.claim_id, result)
            if not await self._effects.settle(connection, self._batch_id, row):
                await _undo(transaction)
                raise StaleClaim
            await self._effects.commit(transaction)
        except OUTAGE as error:
            await _undo(transaction)
            if not await self._effects.is_settled(self._batch_id, self._seq, self.claim_id):
                raise DatabaseAway(type(error).__name__) from error
        except BaseException:
            await _undo(transaction)
            raise
        finally:
            self.committing = False
        self.settled = True


def _is_gone(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        # The pool has taken it back, as it does when a session ends.
        return True


async def _undo(transaction: asyncpg.transaction.Transaction) -> None:
    with suppress(*OUTAGE, asyncpg.PostgresError):
        await transaction.rollback()
