"""A submit inside a transaction of the caller's: the batch is there if that commits, and only then."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from fanout import Item
from fanout.errors import DuplicateItemKey, InvalidItem, InvalidRequest, KeyBusy, KeyConflict, UnknownBatch
from tests.ledger import closed
from tests.support import ROOT, Deployment

TABLES = ("batches", "keys", "items", "results", "events", "duplicates")


@asynccontextmanager
async def connected(fanout: Deployment) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fanout.servers.database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def stored(fanout: Deployment) -> int:
    return sum([int(await fanout.pool.fetchval(f"select count(*) from fanout.{table}")) for table in TABLES])


async def test_a_commit_makes_the_batch_and_a_start_runs_it(fanout: Deployment) -> None:
    await fanout.start_worker()
    await fanout.pool.execute("create table orders (id int)")
    async with connected(fanout) as connection, connection.transaction():
        await connection.execute("insert into orders values (1)")
        batch = await fanout.client.submit("test.echo", ["a", {"b": 1}], key="k", connection=connection)
        assert batch.outcome == "started"
        assert await stored(fanout) == 0
        with pytest.raises(UnknownBatch):
            await batch.start()
    assert (await batch.progress()).status == "pending"
    await batch.start()
    await batch.start()
    assert (await closed(batch)).completed == 2
    assert [row.result async for row in batch.results()] == ["a", {"b": 1}]
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    await batch.start()


async def test_a_rollback_leaves_no_batch_and_no_workflow(fanout: Deployment) -> None:
    async with connected(fanout) as connection:
        transaction = connection.transaction()
        await transaction.start()
        batch = await fanout.client.submit("test.echo", range(10), key="k", connection=connection, allow_unknown=True)
        await transaction.rollback()
    assert await stored(fanout) == 0
    for call in (batch.start, batch.progress):
        with pytest.raises(UnknownBatch):
            await call()
    assert [run async for run in fanout.temporal.list_workflows()] == []
    # The key is free.
    assert (await fanout.client.submit("test.echo", [1], key="k", allow_unknown=True)).outcome == "started"


DIES = """
import asyncio, os, signal, sys
import asyncpg
from fanout import FanoutClient

async def main():
    async with FanoutClient.connect() as fanout:
        connection = await asyncpg.connect(sys.argv[1])
        async with connection.transaction():
            await fanout.submit("test.echo", [1, 2], key="k", connection=connection)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_death_between_commit_and_start_is_healed_by_the_same_submit(fanout: Deployment) -> None:
    await fanout.start_worker()
    command = [sys.executable, "-c", DIES, fanout.servers.database_url]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=fanout.environment, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr
    assert await fanout.pool.fetchval("select status from fanout.batches") == "pending"
    batch = await fanout.client.submit("test.echo", [1, 2], key="k")
    assert batch.outcome == "joined"
    assert (await closed(batch)).completed == 2


async def test_what_cannot_be_stored_leaves_the_callers_transaction_as_it_was(fanout: Deployment) -> None:
    await fanout.pool.execute("create table orders (id int)")
    bad: list[tuple[type[Exception], list[Any]]] = [
        (DuplicateItemKey, [Item(1, "a"), Item(2, "a")]),
        (InvalidItem, [*range(6_000), float("nan")]),
    ]
    async with connected(fanout) as connection, connection.transaction():
        await connection.execute("insert into orders values (1)")
        for error, items in bad:
            with pytest.raises(error):
                await fanout.client.submit("test.echo", items, key="k", connection=connection, allow_unknown=True)
        batch = await fanout.client.submit("test.echo", [1], key="k", connection=connection, allow_unknown=True)
    assert await fanout.pool.fetchval("select count(*) from orders") == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.items") == 1
    assert (await batch.progress()).total == 1


async def test_a_second_submit_in_the_transaction_joins_the_first(fanout: Deployment) -> None:
    options: dict[str, Any] = {"key": "k", "allow_unknown": True}
    async with connected(fanout) as connection:
        async with connection.transaction():
            first = await fanout.client.submit("test.echo", [1], connection=connection, **options)
            again = await fanout.client.submit("test.echo", [1], connection=connection, **options)
            assert (again.outcome, again.batch_id) == ("joined", first.batch_id)
            with pytest.raises(KeyConflict):
                await fanout.client.submit("test.echo", [2], connection=connection, **options)
        async with connection.transaction():
            third = await fanout.client.submit("test.echo", [1], connection=connection, **options)
        await third.start()
    assert [each.outcome for each in await first.duplicates()] == ["joined", "joined"]


async def test_codecs_of_the_callers_connection_do_not_matter(fanout: Deployment) -> None:
    async with connected(fanout) as connection:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str)
        for _ in range(2):
            async with connection.transaction():
                batch = await fanout.client.submit(
                    "test.echo",
                    [{"b": 1, "a": "é"}, "text"],
                    key="k",
                    max_failures=1,
                    connection=connection,
                    allow_unknown=True,
                )
    assert isinstance(batch.batch_id, UUID)
    assert [row.payload async for row in batch.results(with_payload=True)] == [{"b": 1, "a": "é"}, "text"]
    assert (await batch.read()).options["max_failures"] == 1


async def test_a_connection_in_which_a_submit_would_not_be_sound_is_refused(fanout: Deployment) -> None:
    async with connected(fanout) as connection:
        with pytest.raises(InvalidRequest, match="open transaction"):
            await fanout.client.submit("test.echo", [1], connection=connection, allow_unknown=True)
        async with connection.transaction(isolation="repeatable_read"):
            with pytest.raises(InvalidRequest, match="needs read committed"):
                await fanout.client.submit("test.echo", [1], connection=connection, allow_unknown=True)
    other = fanout.servers.database_url.rpartition("/")[0] + "/template1"
    elsewhere = await asyncpg.connect(other)
    async with elsewhere.transaction():
        with pytest.raises(InvalidRequest, match="Fanout's database"):
            await fanout.client.submit("test.echo", [1], connection=elsewhere, allow_unknown=True)
        assert await elsewhere.fetchval("select 1") == 1
    await elsewhere.close()
    assert await stored(fanout) == 0


async def test_two_transactions_that_wait_for_each_others_keys_do_not_hang(fanout: Deployment) -> None:
    first_is_in, second_is_in = asyncio.Event(), asyncio.Event()

    async def both(keys: tuple[str, str], mine: asyncio.Event, others: asyncio.Event) -> list[str]:
        outcomes = []
        async with connected(fanout) as connection, connection.transaction():
            for number, key in enumerate(keys):
                try:
                    batch = await fanout.client.submit(
                        "test.echo", [1], key=key, connection=connection, allow_unknown=True
                    )
                    outcomes.append(str(batch.outcome))
                except KeyBusy:
                    outcomes.append("busy")
                if number == 0:
                    mine.set()
                    await others.wait()
        return outcomes

    found = await asyncio.gather(
        both(("a", "b"), first_is_in, second_is_in), both(("b", "a"), second_is_in, first_is_in)
    )
    assert sorted(found) == [["started", "busy"], ["started", "joined"]]
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2


async def test_many_items_go_into_the_callers_transaction(fanout: Deployment) -> None:
    key = str(uuid4())
    async with connected(fanout) as connection, connection.transaction():
        batch = await fanout.client.submit(
            "test.noop", range(12_001), key=key, connection=connection, allow_unknown=True
        )
    assert await fanout.client.store.read_item_keys(batch.batch_id, 11_999, 20_000) == ["11999", "12000"]
    assert await fanout.client.check("test.noop", range(12_001), key=key) == 12_001
