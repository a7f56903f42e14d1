"""Whether a submit is the one that made a batch, and if not, in what it differs first: in constant memory."""

import hashlib
from collections.abc import Sequence

from fanout.encoding import Fingerprint, canonical
from fanout.errors import Difference, shorten
from fanout.store import Holder, Joins, Stamp, StoredItem


class Comparison:
    """Takes a submit's items as they come, and holds them against those of the batch that has its key."""

    def __init__(self, joins: Joins, holder: Holder) -> None:
        self._joins = joins
        self._holder = holder
        self._fingerprint = Fingerprint()
        self._total = 0
        self._found: Difference | None = None

    async def add(self, chunk: Sequence[StoredItem]) -> None:
        """The next items."""
        for item in chunk:
            self._fingerprint.add(item.key, item.payload)
        first, self._total = self._total, self._total + len(chunk)
        if self._found is None and first < self._holder.total:
            stamps = await self._joins.read_stamps(self._holder.id, first, self._total)
            # Of a batch that is being purged some are gone: then the fingerprint alone tells.
            if len(stamps) == min(self._total, self._holder.total) - first:
                self._found = await self._compare(first, chunk, stamps)

    @property
    def differs(self) -> bool:
        """Whether an item so far is another one: no later one could change that."""
        return self._found is not None

    def difference(self) -> Difference | None:
        """The first difference, once all items were added; the fingerprint of the request has the last word."""
        if self._found is not None:
            return self._found
        if self._total != self._holder.total:
            return Difference(f"{self._total:,} items, and in the batch {self._holder.total:,}")
        if self._fingerprint.digest() != self._holder.fingerprint:
            return Difference("their fingerprint is another one")
        return None

    async def _compare(self, first: int, chunk: Sequence[StoredItem], stamps: Sequence[Stamp]) -> Difference | None:
        # Of the same size: only the order of names may differ, which does not count.
        doubtful = []
        found = None
        for seq, (item, stamp) in enumerate(zip(chunk, stamps, strict=False), first):
            size = len(item.payload.encode())
            if item.key != stamp.key:
                found = _other_key(seq, item, stamp)
            elif size != stamp.size:
                found = _other_payload(seq, item, size, stamp.size)
            elif hashlib.sha256(item.payload.encode()).digest() != stamp.digest:
                doubtful.append(seq)
            if found is not None:
                break
        return await self._resolve(first, chunk, doubtful) or found

    async def _resolve(self, first: int, chunk: Sequence[StoredItem], doubtful: Sequence[int]) -> Difference | None:
        if not doubtful:
            return None
        payloads = await self._joins.read_payloads(self._holder.id, doubtful)
        for seq, payload in payloads.items():
            item = chunk[seq - first]
            if canonical(item.payload) != canonical(payload):
                size = len(payload.encode())
                return _other_payload(seq, item, size, size)
        return None


def _other_key(seq: int, item: StoredItem, stamp: Stamp) -> Difference:
    return Difference(f"item {seq} is {shorten(item.key)!r}, and in the batch {shorten(stamp.key)!r}", seq, item.key)


def _other_payload(seq: int, item: StoredItem, size: int, stored: int) -> Difference:
    sizes = f"{size:,} bytes like" if size == stored else f"{size:,} bytes, not the {stored:,} of"
    detail = f"item {seq} (key {shorten(item.key)!r}) has another payload, of {sizes} that in the batch"
    return Difference(detail, seq, item.key)
