"""The transaction of one submit: the key first, then the items, then the batch."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from fanout.errors import DuplicateItemKey, InvalidRequest, KeyBusy
from fanout.store.joins import Joins
from fanout.store.pool import SCAN_SECONDS, Connection
from fanout.store.rows import NewBatch, StoredItem
from fanout.store.statements import STATEMENTS

KEY_WAIT_SECONDS = 30.0
ISOLATION = "read committed"


class Submission:
    """The open transaction of one submit; `foreign` is one that the caller began, on a connection of its own."""

    def __init__(self, connection: Connection, foreign: bool = False) -> None:
        self._connection = connection
        self._foreign = foreign
        self.joins = Joins(connection)

    @classmethod
    @asynccontextmanager
    async def inside(cls, connection: Connection) -> AsyncIterator["Submission"]:
        """In the caller's transaction: all of the block's writes become part of it, or none does."""
        async with connection.transaction():
            yield cls(connection, foreign=True)

    async def lock_key(self, handler: str, key: str, batch_id: UUID) -> UUID:
        """Takes the key for `batch_id`, or answers the batch that has it. Raises KeyBusy after 30 s of waiting.

        So it does where the wait would be a deadlock, as of two callers that submit two keys in either order.
        """
        try:
            owner = await self._connection.fetchval(
                STATEMENTS["lock_key"], handler, key, batch_id, timeout=KEY_WAIT_SECONDS
            )
        except (TimeoutError, asyncpg.DeadlockDetectedError):
            raise KeyBusy(handler, key) from None
        # A caller's connection may have a codec of its own.
        return UUID(str(owner))

    async def take_key(self, handler: str, key: str, batch_id: UUID) -> None:
        """Gives the key, which this transaction has locked, to another batch."""
        await self._connection.execute(STATEMENTS["take_key"], handler, key, batch_id)

    async def copy_items(self, batch_id: UUID, first: int, items: Sequence[StoredItem]) -> None:
        """Appends items from seq `first` on; raises DuplicateItemKey with both positions."""
        self._refuse_duplicates(first, items)
        savepoint = self._connection.transaction()
        await savepoint.start()
        try:
            await (self._insert if self._foreign else self._copy)(batch_id, first, items)
        except asyncpg.UniqueViolationError:
            await savepoint.rollback()
            await self._raise_duplicate(batch_id, first, items)
        await savepoint.commit()

    async def _copy(self, batch_id: UUID, first: int, items: Sequence[StoredItem]) -> None:
        await self._connection.copy_records_to_table(
            "items",
            schema_name="fanout",
            columns=("batch_id", "seq", "item_key", "payload"),
            records=[(batch_id, first + index, item.key, item.payload) for index, item in enumerate(items)],
            timeout=SCAN_SECONDS,
        )

    async def _insert(self, batch_id: UUID, first: int, items: Sequence[StoredItem]) -> None:
        keys, payloads = [item.key for item in items], [item.payload for item in items]
        await self._connection.execute(
            STATEMENTS["insert_items"], batch_id, first, keys, payloads, timeout=SCAN_SECONDS
        )

    def _refuse_duplicates(self, first: int, items: Sequence[StoredItem]) -> None:
        seen: dict[str, int] = {}
        for position, item in enumerate(items, first):
            if item.key in seen:
                raise DuplicateItemKey(item.key, seen[item.key], position)
            seen[item.key] = position

    async def _raise_duplicate(self, batch_id: UUID, first: int, items: Sequence[StoredItem]) -> None:
        keys = [item.key for item in items]
        records = await self._connection.fetch(STATEMENTS["find_first_positions"], batch_id, keys)
        earlier = {record["item_key"]: record["seq"] for record in records}
        for position, key in enumerate(keys, first):
            if key in earlier:
                raise DuplicateItemKey(key, earlier[key], position) from None
        raise AssertionError("a unique violation without a duplicate")

    async def insert_batch(self, batch: NewBatch, total: int, fingerprint: bytes) -> None:
        """Adds the result rows and the batch itself: the last writes of a submit."""
        await self._connection.execute(STATEMENTS["insert_results"], batch.id, total, timeout=SCAN_SECONDS)
        await self._connection.execute(
            STATEMENTS["insert_batch"],
            batch.id,
            batch.handler,
            batch.key,
            batch.workflow_id,
            batch.title,
            fingerprint,
            json.dumps(batch.options),
            total,
            batch.deadline,
        )


async def check_place(connection: Connection, database_id: UUID) -> None:
    """Raises InvalidRequest unless a transaction is open there, on that database, in which a submit is sound."""
    if not connection.is_in_transaction():
        raise InvalidRequest("connection= takes a connection with an open transaction; the start follows its commit")
    try:
        async with connection.transaction():
            place = await connection.fetchrow(STATEMENTS["read_place"])
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.InsufficientPrivilegeError) as error:
        raise InvalidRequest(f"connection= does not lead to Fanout's database: {error}") from None
    if place is None or UUID(str(place["database_id"])) != database_id:
        raise InvalidRequest("connection= leads to a database of another Fanout than this client's")
    if place["isolation"] != ISOLATION:
        # A snapshot from before the key was locked would show its batch in a state that is over.
        raise InvalidRequest(f"connection= has a transaction of {place['isolation']}; a submit needs {ISOLATION}")
