"""What a submit reads and writes where another batch has its key already."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from fanout.store.pool import SCAN_SECONDS, Connection, Pool
from fanout.store.rows import Duplicate, Holder, Stamp
from fanout.store.statements import STATEMENTS


class Joins:
    """Reads the batch that has a key, and records who joined it: on a pool, or inside one transaction."""

    def __init__(self, source: Pool | Connection) -> None:
        self._source = source

    async def read_holder(self, batch_id: UUID, policy: str, span: timedelta | None) -> Holder | None:
        """The batch, also a purged one, judged by `policy`, or None where there is no such batch."""
        record = await self._source.fetchrow(STATEMENTS["read_holder"], batch_id, policy, span)
        if record is None:
            return None
        return Holder(
            batch_id, record["fingerprint"], record["total"], record["closed"], replaceable=record["replaceable"]
        )

    async def read_stamps(self, batch_id: UUID, lo: int, hi: int) -> list[Stamp]:
        """The stamps of the items `[lo, hi)` in seq order: a hundred bytes each, whatever their payloads weigh."""
        records = await self._source.fetch(STATEMENTS["read_stamps"], batch_id, lo, hi, timeout=SCAN_SECONDS)
        return [Stamp(record["item_key"], record["size"], record["digest"]) for record in records]

    async def read_payloads(self, batch_id: UUID, seqs: Sequence[int]) -> dict[int, str]:
        """The JSON texts of some payloads."""
        records = await self._source.fetch(STATEMENTS["read_payloads"], batch_id, seqs, timeout=SCAN_SECONDS)
        return {record["seq"]: record["payload"] for record in records}

    async def add_duplicate(self, batch_id: UUID, origin: str, outcome: str, start_id: UUID | None) -> None:
        """Records a start that joined `batch_id` instead of making a batch; once, where it has a `start_id`."""
        await self._source.execute(STATEMENTS["insert_duplicate"], batch_id, origin, outcome, start_id)

    async def list_duplicates(self, batch_id: UUID, limit: int | None = None) -> list[Duplicate]:
        """The starts that joined the batch, newest first; all of them without `limit`."""
        records = await self._source.fetch(STATEMENTS["list_duplicates"], batch_id, limit)
        return [Duplicate(record["at"], record["origin"], record["outcome"]) for record in records]
