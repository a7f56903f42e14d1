"""Reads for people who look around: pages, and sums whose cost has a bound, however many rows a batch has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from fanout.store.pool import Pool
from fanout.store.rows import ResultRow, result_row
from fanout.store.schema import check_schema
from fanout.store.statements import STATEMENTS

SAMPLE_ROWS = 10_000
"""How many rows of a bigger batch its sums look at."""
TOLD_FAILURES = 20_000
# Behind every key: keys have at most 400 bytes, which are 100 of these.
_BEHIND_ALL_KEYS = chr(0x10FFFF) * 101
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are looked for; what is None does not matter."""

    status: str | None = None
    error_type: str | None = None
    error_code: str | None = None

    @property
    def anything(self) -> bool:
        """Whether every row fits."""
        return self.status is None and self.error_type is None and self.error_code is None


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row on a page; a result of more than 32 KiB is left out there."""

    row: ResultRow
    result_left_out: bool


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed rows that share code and type; `first` is the seq of one of them."""

    code: str
    type: str
    found: int
    first: int


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed row, with the beginning of its error's text."""

    seq: int
    item_key: str
    attempts: int
    message: str


@dataclass(frozen=True, slots=True)
class Settles:
    """How many of the sampled rows settled in one span of time; spans count from 1."""

    bucket: int
    completed: int
    failed: int
    cancelled: int


class Browsing:
    """Each method is one read, and looks at a bounded number of rows."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def check_schema(self) -> UUID:
        """The database's id, where it answers with this version's schema; raises SchemaMismatch."""
        return await check_schema(self._pool)

    async def page_batches(
        self, status: str | None, handler: str | None, after: tuple[datetime, UUID] | None, limit: int
    ) -> list[tuple[datetime, UUID]]:
        """When batches were created and which they are, newest first, behind `after`."""
        created_at, batch_id = after or (None, None)
        records = await self._pool.fetch(STATEMENTS["page_batches"], status, handler, created_at, batch_id, limit)
        return [(record["created_at"], record["id"]) for record in records]

    async def page_rows(self, batch_id: UUID, lo: int, hi: int, wanted: Wanted, limit: int) -> list[PageRow]:
        """Up to `limit` rows of `[lo, hi)` that fit, in seq order."""
        records = await self._pool.fetch(STATEMENTS["page_rows"], batch_id, lo, hi, *_filters(wanted), limit)
        return [PageRow(result_row(record), record["left_out"]) for record in records]

    async def find_item_keys(self, batch_id: UUID, prefix: str, after: str, limit: int) -> list[tuple[str, int]]:
        """Keys that begin with `prefix`, behind `after`, in the order of their bytes, each with its seq."""
        end = _behind(prefix)
        records = await self._pool.fetch(STATEMENTS["find_item_keys"], batch_id, prefix, end, after, limit)
        return [(record["item_key"], record["seq"]) for record in records]

    async def read_rows_at(self, batch_id: UUID, seqs: Sequence[int], wanted: Wanted) -> list[PageRow]:
        """The rows at these seqs that fit, in the order of their keys."""
        records = await self._pool.fetch(STATEMENTS["read_rows_at"], batch_id, seqs, *_filters(wanted))
        return [PageRow(result_row(record), record["left_out"]) for record in records]

    async def group_told_failures(self, batch_id: UUID) -> list[FailureGroup]:
        """The failed rows that the batch's events name: all of them, where there are few of each type."""
        return _groups(await self._pool.fetch(STATEMENTS["group_told_failures"], batch_id, TOLD_FAILURES))

    async def group_sampled_failures(self, batch_id: UUID, total: int) -> list[FailureGroup]:
        """The failed rows of a sample; of all rows, where these are not too many."""
        return _groups(await self._pool.fetch(STATEMENTS["group_sampled_failures"], batch_id, total, step(total)))

    async def read_failures(self, batch_id: UUID, seqs: Sequence[int]) -> dict[int, Failure]:
        """Some failed rows by their seqs."""
        records = await self._pool.fetch(STATEMENTS["read_failures"], batch_id, seqs)
        return {record["seq"]: Failure(**record) for record in records}

    async def sample_settles(
        self, batch_id: UUID, total: int, begin: datetime, end: datetime, buckets: int
    ) -> list[Settles]:
        """When the rows of a sample settled, as counts in `buckets` spans; what lies outside is in 0 or beyond."""
        arguments = (total, step(total), begin.timestamp(), end.timestamp(), buckets)
        records = await self._pool.fetch(STATEMENTS["sample_settles"], batch_id, *arguments)
        return [Settles(**record) for record in records]


def step(total: int) -> int:
    """Of how many rows a sample looks at one: 1 means that it is no sample."""
    return max(1, -(-total // SAMPLE_ROWS))


def _filters(wanted: Wanted) -> tuple[str | None, str | None, str | None]:
    return wanted.status, wanted.error_type, wanted.error_code


def _groups(records: Sequence[asyncpg.Record]) -> list[FailureGroup]:
    return [FailureGroup(**record) for record in records]


def _behind(prefix: str) -> str:
    """The least text behind every key that begins with `prefix`, in the order of bytes, which is that of characters."""
    kept = prefix.rstrip(chr(0x10FFFF))
    if not kept:
        return _BEHIND_ALL_KEYS
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
