"""Schema migrations: numbered SQL files, applied in order under one advisory lock."""

from dataclasses import dataclass
from importlib.resources import files
from uuid import UUID

import asyncpg

from fanout.errors import SchemaMismatch
from fanout.store.pool import SCAN_SECONDS, Connection, Pool
from fanout.store.statements import STATEMENTS

_LOCK = 5_783_249_101_377


@dataclass(frozen=True)
class Migration:
    """One numbered file of `fanout/store/migrations`."""

    version: int
    name: str
    sql: str


def _read_migrations() -> tuple[Migration, ...]:
    folder = files("fanout.store").joinpath("migrations")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(
        Migration(int(name.split("_")[0]), name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names
    )


MIGRATIONS = _read_migrations()
SCHEMA_VERSION = MIGRATIONS[-1].version
_RECORD = """insert into fanout.meta (schema_version) values ({version})
on conflict (singleton) do update set schema_version = excluded.schema_version;"""


def script(migration: Migration) -> str:
    """The SQL of one migration with the line that records it: what `migrate` runs and `migrate --print` prints."""
    return f"-- {migration.name}\n{migration.sql}\n{_RECORD.format(version=migration.version)}\n"


async def migrate(pool: Pool) -> tuple[int, int, list[str]]:
    """Brings the schema to this version: (from, to, applied). One transaction; any number may run it at once."""
    async with pool.transaction() as connection:
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK, timeout=SCAN_SECONDS)
        before = await _version(connection)
        if before > SCHEMA_VERSION:
            raise SchemaMismatch(before, SCHEMA_VERSION)
        waiting = [migration for migration in MIGRATIONS if migration.version > before]
        for migration in waiting:
            await connection.execute(script(migration), timeout=SCAN_SECONDS)
    return before, SCHEMA_VERSION, [migration.name for migration in waiting]


async def _version(connection: Connection) -> int:
    if await connection.fetchval("select to_regclass('fanout.meta')") is None:
        return 0
    return int(await connection.fetchval("select coalesce(max(schema_version), 0) from fanout.meta"))


async def check_schema(pool: Pool) -> UUID:
    """The database's random id; raises SchemaMismatch when the schema is not this version's."""
    try:
        row = await pool.fetchrow(STATEMENTS["read_meta"])
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        row = None
    found = 0 if row is None else int(row["schema_version"])
    if row is None or found != SCHEMA_VERSION:
        raise SchemaMismatch(found, SCHEMA_VERSION)
    return UUID(str(row["database_id"]))
