"""Connections to PostgreSQL."""

from typing import TYPE_CHECKING

import asyncpg

from fanout.errors import ServerUnreachable
from fanout.settings import hide_password
from fanout.store.faults import OUTAGE

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
else:
    # asyncpg's classes are generic for type checkers only.
    Pool = asyncpg.Pool
    Connection = asyncpg.Connection

STATEMENT_SECONDS = 60.0
UNREACHABLE: tuple[type[BaseException], ...] = (*OUTAGE, asyncpg.PostgresError, ValueError)
SCAN_SECONDS = 600.0
"""The time limit of statements that read or write every row of a batch."""


async def _keep_session(connection: object) -> None:
    """Replaces asyncpg's reset between users, a round trip each: no code here leaves anything in a session."""


async def connect_pool(url: str, *, purpose: str, size: int, chosen_by: str = "FANOUT_DATABASE_URL") -> Pool:
    """A pool of at most `size` connections; raises ServerUnreachable when the first cannot be made."""
    try:
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=size,
            timeout=10,
            command_timeout=STATEMENT_SECONDS,
            max_inactive_connection_lifetime=60,
            reset=_keep_session,
            server_settings={
                "application_name": f"fanout {purpose}",
                "jit": "off",
                "timezone": "UTC",
                "idle_in_transaction_session_timeout": "600s",
            },
        )
    except UNREACHABLE as error:
        cause = str(error) or type(error).__name__
        raise ServerUnreachable("PostgreSQL", hide_password(url), chosen_by, cause) from error
