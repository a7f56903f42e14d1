"""Connections to PostgreSQL: shared, with a time limit on everything, and dropped once they cannot be trusted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from fanout.errors import ServerUnreachable
from fanout.settings import hide_password
from fanout.store.faults import OUTAGE

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Connections = asyncpg.Pool[asyncpg.Record]
    Records = list[asyncpg.Record]
else:
    # asyncpg's classes are generic for type checkers only.
    Connection = asyncpg.Connection
    Connections = asyncpg.Pool
    Records = list

CONNECT_SECONDS = 10.0
ACQUIRE_SECONDS = 30.0
"""How long a statement waits for one of the pool's connections, which others may hold."""
STATEMENT_SECONDS = 60.0
READ_SECONDS = 20.0
"""The time limit of reads of a few rows: they wait for no lock, so a longer silence is a dead line."""
SCAN_SECONDS = 600.0
"""The time limit of statements that read or write every row of a batch."""
CLOSE_SECONDS = 1.0
# The server gives up a little earlier than we do: then it says so, and the connection stays.
SERVER_SHARE = 0.8
UNREACHABLE: tuple[type[BaseException], ...] = (*OUTAGE, asyncpg.PostgresError, ValueError)
SPOILING: tuple[type[BaseException], ...] = (
    TimeoutError,
    asyncio.CancelledError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
)
"""After these a connection is dropped: its answer may never come, or its server is the wrong one now."""


class Pool:
    """A number of connections that tasks share.

    A connection whose statement got no answer in time is dropped at once, without a word to a server that may be gone.
    So is one whose server takes no writes: after a failover it may be the old server's, which would never tell.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection for the block; raises TimeoutError when none is free for 30 s."""
        connection = await self._connections.acquire(timeout=ACQUIRE_SECONDS)
        try:
            yield connection
        except SPOILING:
            _drop(connection)
            raise
        finally:
            if _refuses_writes(connection):
                _drop(connection)
            await self._connections.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection with a transaction that is committed at the end of the block, and rolled back by any error."""
        async with self.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except SPOILING:
                # The transaction ends with its connection.
                raise
            except BaseException:
                with suppress(*OUTAGE):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def fetch(self, query: str, *arguments: object, timeout: float | None = None) -> Records:
        """All rows."""
        async with self.acquire() as connection:
            return await connection.fetch(query, *arguments, timeout=timeout)

    async def fetchrow(self, query: str, *arguments: object, timeout: float | None = None) -> asyncpg.Record | None:
        """The first row."""
        async with self.acquire() as connection:
            return await connection.fetchrow(query, *arguments, timeout=timeout)

    async def fetchval(self, query: str, *arguments: object, timeout: float | None = None) -> Any:
        """The first value of the first row."""
        async with self.acquire() as connection:
            return await connection.fetchval(query, *arguments, timeout=timeout)

    async def execute(self, query: str, *arguments: object, timeout: float | None = None) -> str:
        """Runs a statement, or several without arguments."""
        async with self.acquire() as connection:
            return await connection.execute(query, *arguments, timeout=timeout)

    async def close(self) -> None:
        """Closes all connections, after a second by force."""
        with suppress(*OUTAGE):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connections.close()
        self.terminate()

    def terminate(self) -> None:
        """Drops all connections at once."""
        self._connections.terminate()


def _drop(connection: Connection) -> None:
    # One that is closed is the pool's again, and takes no more calls.
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def _refuses_writes(connection: Connection) -> bool:
    """Whether the server has told this connection that it is a standby, or set to read only."""
    try:
        settings = connection.get_settings()
    except asyncpg.InterfaceError:
        # It is closed.
        return False
    return "on" in (
        getattr(settings, "in_hot_standby", None),
        getattr(settings, "default_transaction_read_only", None),
    )


async def _keep_session(connection: object) -> None:
    """Replaces asyncpg's reset between users, a round trip each: no code here leaves anything in a session."""


async def connect_pool(
    url: str,
    *,
    purpose: str,
    size: int,
    chosen_by: str = "FANOUT_DATABASE_URL",
    answer_seconds: float | None = None,
) -> Pool:
    """A pool of at most `size` connections; raises ServerUnreachable when the first cannot be made.

    Statements have a minute, those with a time limit of their own that; `answer_seconds` is for pools that run only
    short ones, and limits these on the server too.
    """
    limit = {} if answer_seconds is None else {"statement_timeout": f"{answer_seconds * SERVER_SHARE * 1_000:.0f}ms"}
    connections = asyncpg.create_pool(
        url,
        # Connections are made when they are needed: asyncpg logs a traceback for each that it fails to make unasked.
        min_size=0,
        max_size=size,
        timeout=CONNECT_SECONDS,
        command_timeout=answer_seconds or STATEMENT_SECONDS,
        max_inactive_connection_lifetime=60,
        reset=_keep_session,
        server_settings={
            "application_name": f"fanout {purpose}",
            "jit": "off",
            "timezone": "UTC",
            "idle_in_transaction_session_timeout": "600s",
            **limit,
        },
    )
    pool = Pool(connections)
    try:
        await connections
        async with pool.acquire():
            return pool
    except UNREACHABLE as error:
        pool.terminate()
        cause = str(error) or type(error).__name__
        raise ServerUnreachable("PostgreSQL", hide_password(url), chosen_by, cause) from error
