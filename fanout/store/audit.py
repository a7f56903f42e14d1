"""An audit of every settle by a trigger: what the demo and the tests trust instead of the guard itself."""

from uuid import UUID

from fanout.store.pool import Pool
from fanout.store.statements import STATEMENTS


async def install_audit(pool: Pool) -> None:
    """From now on every settle in this database is recorded. Repeating it is harmless; it costs every settle a row."""
    await pool.execute(STATEMENTS["install_audit"])


async def count_recorded_twice(pool: Pool, batch_id: UUID) -> int:
    """How many rows of the batch were settled more than once in one epoch."""
    return int(await pool.fetchval(STATEMENTS["count_recorded_twice"], batch_id))


async def count_settles(pool: Pool, batch_id: UUID) -> int:
    """How many settles of the batch were recorded."""
    return int(await pool.fetchval(STATEMENTS["count_settles"], batch_id))
