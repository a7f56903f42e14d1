"""Submits: one transaction that stores a batch whole, or finds the batch that has the key."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid4

from fanout.client.comparing import Comparison
from fanout.client.dedup import Dedup
from fanout.client.items import Items, check_key, check_line, chunks
from fanout.client.limits import Limits
from fanout.contracts import RANGE_ITEMS
from fanout.encoding import Fingerprint
from fanout.errors import DuplicateItemKey, InvalidRequest, KeyConflict, KeyPurged, UnknownHandler
from fanout.names import HANDLER_NAME, Names
from fanout.store import BatchStore, Connection, Holder, Joins, NewBatch, Submission

TITLE_CHARACTERS = 200
NO_LIMITS = Limits()
FOREVER = Dedup()
SEEN_WITHIN = timedelta(days=1)
"""Who was seen within it tells which handlers there are: a lease that is stale for a moment is no reason to refuse."""
ORIGINS = ("client", "cli", "http", "schedule", "temporal")
"""Who asks for a start: recorded with those that joined a batch."""


class SubmitOutcome(StrEnum):
    """What a submit came to: a new batch, an open one that has the key, or a closed one."""

    STARTED = "started"
    JOINED = "joined"
    ALREADY_DONE = "already_done"


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What a submit asks for beside its items; checked when it is made."""

    handler: str
    key: str | None = None
    title: str | None = None
    range_size: int | None = None
    origin: str = "client"
    limits: Limits = NO_LIMITS
    on_close: str | None = None
    dedup: Dedup = FOREVER
    by_key_alone: bool = False
    """Whether whatever batch has the key is joined: our items are then not compared, and not even read."""
    traceparent: str | None = None

    def __post_init__(self) -> None:
        check_handler(self.handler)
        if self.on_close is not None:
            check_handler(self.on_close, "on_close, as every handler's name,")
        if self.key is not None:
            check_key(self.key)
        if self.title is not None:
            check_line("a title", self.title, TITLE_CHARACTERS)
        if self.range_size is not None:
            check_range_size(self.range_size)
        if self.origin not in ORIGINS:
            raise InvalidRequest(f"origin is {self.origin!r}; it is one of {', '.join(ORIGINS)}")

    def stored(self, total: int) -> dict[str, Any]:
        """What the row of a batch of `total` items keeps."""
        given = {
            "range_size": self.range_size,
            "on_close": self.on_close,
            "dedup": self.dedup.stored,
            "traceparent": self.traceparent,
        }
        return {**{name: value for name, value in given.items() if value is not None}, **self.limits.stored(total)}

    @property
    def handlers(self) -> tuple[str, ...]:
        """Every handler that the batch needs."""
        return (self.handler,) if self.on_close is None else (self.handler, self.on_close)


def check_handler(name: object, what: str = "a handler's name") -> None:
    """Raises InvalidRequest for what cannot be a handler's name."""
    if not isinstance(name, str) or not HANDLER_NAME.fullmatch(name):
        raise InvalidRequest(f"{what} matches {HANDLER_NAME.pattern}, {name!r} does not")


def check_range_size(size: object) -> None:
    """Raises InvalidRequest for what is no number of items that an activity may have."""
    if not (type(size) is int and 1 <= size <= RANGE_ITEMS):
        raise InvalidRequest(f"range size {size!r} is not a number between 1 and {RANGE_ITEMS:,}")


def refuse_unknown(handlers: tuple[str, ...], known: set[str]) -> None:
    """Raises UnknownHandler for the first that nobody knows."""
    for handler in handlers:
        if handler not in known:
            raise UnknownHandler(handler, sorted(known))


async def store_batch(
    store: BatchStore,
    names: Names,
    options: SubmitOptions,
    items: Items,
    payload_limit: int,
    connection: Connection | None = None,
    start_id: UUID | None = None,
) -> tuple[UUID, SubmitOutcome]:
    """Stores the batch in one transaction, or finds the one that has its key.

    Any number of concurrent submits of one key make one batch; the others wait for it. Raises InvalidItem,
    DuplicateItemKey, KeyConflict or KeyBusy, and then nothing was stored. With `connection` it all becomes part of the
    transaction that is open there. A start that may be tried again after a lost answer has a `start_id`: its batch has
    that id, so that every try finds what the first one did.
    """
    batch_id = start_id or uuid4()
    key = str(start_id or uuid4()) if options.key is None else options.key
    async with store.submitting() if connection is None else Submission.inside(connection) as submission:
        holder = await _take_key(submission, options, key, batch_id, repeated=start_id is not None)
        if holder is None:
            workflow_id = names.workflow_id(options.handler, key)
            batch = NewBatch(batch_id, options.handler, key, workflow_id, options.title, {}, options.limits.deadline)
            await _copy(submission, batch, options, items, payload_limit)
        elif connection is not None and holder.id != batch_id:
            await _join(submission.joins, options, key, holder, items, payload_limit, start_id)
    if holder is None or holder.id == batch_id:
        return batch_id, SubmitOutcome.STARTED
    if connection is None:
        # Not in the transaction, which has the key locked: items may come slowly.
        await _join(store.joins, options, key, holder, items, payload_limit, start_id)
    return holder.id, _outcome(holder)


async def _take_key(
    submission: Submission, options: SubmitOptions, key: str, batch_id: UUID, repeated: bool
) -> Holder | None:
    """None once the key is the new batch's; else the batch to join, or this one if an earlier try has stored it."""
    owner = await submission.lock_key(options.handler, key, batch_id)
    if repeated and (mine := await _read_holder(submission.joins, batch_id, options.dedup)) is not None:
        return mine
    if owner == batch_id:
        return None
    holder = await _read_holder(submission.joins, owner, options.dedup)
    if not _may_replace(holder, options, key, owner):
        return holder
    await submission.take_key(options.handler, key, batch_id)
    return None


async def _read_holder(joins: Joins, batch_id: UUID, dedup: Dedup) -> Holder | None:
    return await joins.read_holder(batch_id, dedup.name, dedup.span)


def _may_replace(holder: Holder | None, options: SubmitOptions, key: str, owner: UUID) -> bool:
    if holder is not None:
        return holder.replaceable
    if options.dedup.outlives_purging:
        raise KeyPurged(options.handler, key, owner)
    return True


def _outcome(holder: Holder) -> SubmitOutcome:
    return SubmitOutcome.ALREADY_DONE if holder.closed else SubmitOutcome.JOINED


async def _copy(
    submission: Submission, batch: NewBatch, options: SubmitOptions, items: Items, payload_limit: int
) -> None:
    fingerprint = Fingerprint()
    total = 0
    async for chunk in chunks(items, payload_limit):
        await submission.copy_items(batch.id, total, chunk)
        for item in chunk:
            fingerprint.add(item.key, item.payload)
        total += len(chunk)
    await submission.insert_batch(replace(batch, options=options.stored(total)), total, fingerprint.digest())


async def _join(
    joins: Joins,
    options: SubmitOptions,
    key: str,
    holder: Holder,
    items: Items,
    payload_limit: int,
    start_id: UUID | None,
) -> None:
    if not options.by_key_alone:
        await _compare(joins, options, key, holder, items, payload_limit)
    await joins.add_duplicate(holder.id, options.origin, _outcome(holder), start_id)


async def _compare(
    joins: Joins, options: SubmitOptions, key: str, holder: Holder, items: Items, payload_limit: int
) -> None:
    comparison = Comparison(joins, holder)
    async for chunk in chunks(items, payload_limit):
        await comparison.add(chunk)
        if comparison.differs:
            break
    difference = comparison.difference()
    if difference is not None:
        raise KeyConflict(options.handler, key, holder.id, difference)


async def check_batch(store: BatchStore, options: SubmitOptions, items: Items, payload_limit: int) -> int:
    """How many items there are, once each is known to be one that `store_batch` would store. Stores and locks nothing.

    Raises InvalidItem, DuplicateItemKey or KeyConflict as that would. Takes about 150 bytes of memory for each item.
    """
    holder = await _find_holder(store, options)
    comparison = None if holder is None else Comparison(store.joins, holder)
    positions: dict[bytes, int] = {}
    async for chunk in chunks(items, payload_limit):
        for item in chunk:
            position = len(positions)
            first = positions.setdefault(blake2b(item.key.encode(), digest_size=16).digest(), position)
            if first != position:
                raise DuplicateItemKey(item.key, first, position)
        if comparison is not None:
            await comparison.add(chunk)
    difference = None if comparison is None else comparison.difference()
    if holder is not None and options.key is not None and difference is not None:
        raise KeyConflict(options.handler, options.key, holder.id, difference)
    return len(positions)


async def _find_holder(store: BatchStore, options: SubmitOptions) -> Holder | None:
    """The batch that a submit would join."""
    owner = None if options.key is None else await store.find_holder(options.handler, options.key)
    if owner is None or options.key is None:
        return None
    holder = await _read_holder(store.joins, owner, options.dedup)
    return None if _may_replace(holder, options, options.key, owner) else holder
