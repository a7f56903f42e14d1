"""One real stack for the whole session, one database and one namespace for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path

import asyncpg
import pytest

from fanout import Settings
from fanout.devstack import Stack, use
from fanout.store import MIGRATIONS, connect_pool, migrate
from tests.support import ROOT, Deployment, deployment

SHORT_HEARTBEAT_SECONDS = 3.0
TEMPLATE_LOCK = 7_391_002


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack that all test processes of this checkout share."""
    with use(Settings(home=ROOT / ".fanout" / "tests")) as running:
        yield running


@pytest.fixture(scope="session")
def template(stack: Stack) -> str:
    """A migrated database to make the tests' databases from; made once for each state of the schema."""
    return asyncio.run(make_template(stack))


async def make_template(stack: Stack) -> str:
    """The name of the migrated database, which any number of processes may ask for at once."""
    digest = sha256("".join(migration.sql for migration in MIGRATIONS).encode()).hexdigest()[:16]
    name = f"template_{digest}"
    connection = await asyncpg.connect(stack.database_url)
    try:
        await connection.execute("select pg_advisory_lock($1)", TEMPLATE_LOCK)
        if await connection.fetchval("select true from pg_database where datname = $1", name):
            return name
        # Under another name until it is whole: a killed session must not leave half a template behind.
        await connection.execute(f'drop database if exists "{name}_new"')
        await connection.execute(f'create database "{name}_new"')
        pool = await connect_pool(f"{stack.database_url.rpartition('/')[0]}/{name}_new", purpose="template", size=1)
        await migrate(pool)
        await pool.close()
        await connection.execute(f'alter database "{name}_new" rename to "{name}"')
        return name
    finally:
        await connection.close()


@pytest.fixture
async def fanout(stack: Stack, template: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment with a short heartbeat timeout and no worker yet."""
    async with deployment(stack, template, tmp_path, heartbeat_seconds=SHORT_HEARTBEAT_SECONDS) as made:
        yield made
