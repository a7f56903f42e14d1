"""The schema refuses rows that cannot be, knows the states of the code, and is migrated by any number at once."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from fanout.devstack import Stack
from fanout.errors import SchemaMismatch
from fanout.states import CLOSED, BatchStatus, ItemStatus
from fanout.store import MIGRATIONS, SCHEMA_VERSION, Connection, check_schema, connect_pool, migrate
from tests.store.support import FINGERPRINT, HANDLER, WORKFLOW, database, observer

CLAIM = {"claim_id": str(uuid4()), "worker_id": str(uuid4())}
RESULT = {"result": '"a result"'}
ERROR = {"error": '{"type": "Broken"}'}
SETTLED_AT = {"settled_at": "2026-01-01 00:00:00+00"}

# What a row in each state must have, and what it must not have.
ITEM_FACTS: dict[ItemStatus, tuple[dict[str, str], dict[str, str]]] = {
    ItemStatus.PENDING: ({}, CLAIM | SETTLED_AT | RESULT),
    ItemStatus.PROCESSING: (CLAIM, SETTLED_AT | RESULT),
    ItemStatus.COMPLETED: ({"claim_id": CLAIM["claim_id"]} | SETTLED_AT | RESULT, ERROR),
    ItemStatus.FAILED: ({"claim_id": CLAIM["claim_id"]} | SETTLED_AT | ERROR, RESULT),
    ItemStatus.CANCELLED: (SETTLED_AT | ERROR, RESULT),
}
COUNTS = {"completed": "1", "failed": "1", "cancelled": "1"}
CLOSED_AT = {"closed_at": "2026-01-01 00:00:00+00"}


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    async with observer(url) as made:
        yield made


async def _insert(connection: Connection, table: str, values: dict[str, str]) -> None:
    """One row from text values, as it comes from no statement of the store; nothing stays."""
    columns = ", ".join(values)
    literals = ", ".join("'" + value.replace("'", "''") + "'" for value in values.values())
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"insert into fanout.{table} ({columns}) values ({literals})")
    finally:
        await transaction.rollback()


async def _refuse(connection: Connection, table: str, values: dict[str, str]) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await _insert(connection, table, values)


@pytest.mark.parametrize("status", ItemStatus)
async def test_a_result_row_has_what_its_state_needs_and_nothing_else(
    connection: Connection, status: ItemStatus
) -> None:
    needed, forbidden = ITEM_FACTS[status]
    row = {"batch_id": str(uuid4()), "seq": "0", "status": status.value} | needed
    await _insert(connection, "results", row)
    for column in needed:
        await _refuse(connection, "results", {name: value for name, value in row.items() if name != column})
    for column, value in forbidden.items():
        await _refuse(connection, "results", row | {column: value})
    for column in ("attempts", "crashes", "throttles"):
        await _refuse(connection, "results", row | {column: "-1"})


async def test_a_result_row_has_a_known_state(connection: Connection) -> None:
    await _refuse(connection, "results", {"batch_id": str(uuid4()), "seq": "0", "status": "done"})


def _batch(**values: str) -> dict[str, str]:
    facts = {"id": str(uuid4()), "handler": HANDLER, "key": "one", "workflow_id": WORKFLOW, "total": "3"}
    return facts | {"fingerprint": "\\x" + FINGERPRINT.hex()} | values


@pytest.mark.parametrize("status", BatchStatus)
async def test_a_batch_has_its_final_counts_when_it_is_closed_and_only_then(
    connection: Connection, status: BatchStatus
) -> None:
    final = CLOSED_AT | COUNTS
    needed = final if status in CLOSED else {}
    row = _batch(status=status.value, cancelling_at=CLOSED_AT["closed_at"]) | needed
    await _insert(connection, "batches", row)
    for column, value in final.items():
        if status in CLOSED:
            await _refuse(connection, "batches", {name: kept for name, kept in row.items() if name != column})
        else:
            await _refuse(connection, "batches", row | {column: value})
    if status in CLOSED:
        await _refuse(connection, "batches", row | {"failed": "2"})


@pytest.mark.parametrize(
    "values",
    [
        {"status": "done"},
        {"status": "cancelling"},
        {"epoch": "0"},
        {"total": "-1"},
        {"handler": "No Name"},
        {"key": ""},
        {"key": "k" * 151},
        {"title": "t" * 201},
        {"fingerprint": "\\x00"},
    ],
    ids=str,
)
async def test_a_batch_without_sense_is_refused(connection: Connection, values: dict[str, str]) -> None:
    await _refuse(connection, "batches", _batch(**values))


async def test_a_key_has_one_open_batch(connection: Connection) -> None:
    values = _batch()
    text = ", ".join(f"'{value}'" for value in values.values())
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"insert into fanout.batches ({', '.join(values)}) values ({text})")
    with pytest.raises(asyncpg.UniqueViolationError):
        await _insert(connection, "batches", _batch())
    await _insert(connection, "batches", _batch(key="two"))
    await _insert(connection, "batches", _batch(status="cancelled") | CLOSED_AT | COUNTS)
    await transaction.rollback()


async def _words(connection: Connection, constraint: str) -> list[str]:
    definition = await connection.fetchval(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = $1", constraint
    )
    return re.findall(r"'(\w+)'", definition)


async def test_the_states_of_the_schema_are_those_of_the_code(connection: Connection) -> None:
    assert await _words(connection, "results_state") == list(ItemStatus)
    assert await _words(connection, "batches_status_check") == list(BatchStatus)
    assert set(await _words(connection, "batches_closed")) == CLOSED


async def test_any_number_may_migrate_at_once_and_again(stack: Stack) -> None:
    async with database(stack, "template0") as url:
        pools = await asyncio.gather(*(connect_pool(url, purpose="migrate", size=1) for _ in range(4)))
        names = [migration.name for migration in MIGRATIONS]
        answers = await asyncio.gather(*(migrate(pool) for pool in pools))
        assert sorted(answers) == [
            (0, SCHEMA_VERSION, names),
            *[(SCHEMA_VERSION, SCHEMA_VERSION, [])] * 3,
        ]
        ids = {await check_schema(pool) for pool in pools}
        assert await migrate(pools[0]) == (SCHEMA_VERSION, SCHEMA_VERSION, [])
        assert {await check_schema(pools[0])} == ids
        await asyncio.gather(*(pool.close() for pool in pools))


async def _mismatch(pool: Any) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as caught:
        await check_schema(pool)
    return caught.value


async def test_a_database_of_another_version_is_refused(stack: Stack) -> None:
    async with database(stack, "template0") as url:
        pool = await connect_pool(url, purpose="schema", size=1)
        assert (await _mismatch(pool)).found == 0
        await migrate(pool)
        await check_schema(pool)
        await pool.execute("update fanout.meta set schema_version = $1", SCHEMA_VERSION + 1)
        assert (await _mismatch(pool)).found == SCHEMA_VERSION + 1
        with pytest.raises(SchemaMismatch):
            await migrate(pool)
        await pool.execute("delete from fanout.meta")
        assert (await _mismatch(pool)).found == 0
        await pool.close()
