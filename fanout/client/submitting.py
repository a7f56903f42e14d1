"""Submits: one transaction that stores a batch whole, or finds the batch that has the key."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid4

from fanout.client.items import Items, check_key, check_words, chunks
from fanout.client.limits import Limits
from fanout.contracts import RANGE_ITEMS
from fanout.encoding import Fingerprint
from fanout.errors import DuplicateItemKey, InvalidRequest, KeyConflict, UnknownHandler
from fanout.names import HANDLER_NAME, Names
from fanout.store import BatchStore, NewBatch, Submission

TITLE_CHARACTERS = 200
NO_LIMITS = Limits()


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

    def __post_init__(self) -> None:
        _check_handler("a handler's name", self.handler)
        if self.on_close is not None:
            _check_handler("on_close, as every handler's name,", self.on_close)
        if self.key is not None:
            check_key(self.key)
        if self.title is not None:
            check_words("a title", self.title, TITLE_CHARACTERS)
        size = self.range_size
        if size is not None and not (type(size) is int and 1 <= size <= RANGE_ITEMS):
            raise InvalidRequest(f"range size {size!r} is not a number between 1 and {RANGE_ITEMS:,}")

    def stored(self, total: int) -> dict[str, Any]:
        """What the row of a batch of `total` items keeps."""
        given = {"range_size": self.range_size, "on_close": self.on_close}
        return {**{name: value for name, value in given.items() if value is not None}, **self.limits.stored(total)}

    @property
    def handlers(self) -> tuple[str, ...]:
        """Every handler that the batch needs."""
        return (self.handler,) if self.on_close is None else (self.handler, self.on_close)


def _check_handler(what: str, name: object) -> None:
    if not isinstance(name, str) or not HANDLER_NAME.fullmatch(name):
        raise InvalidRequest(f"{what} matches {HANDLER_NAME.pattern}, {name!r} does not")


def refuse_unknown(handlers: Iterable[str], known: set[str]) -> None:
    """Raises UnknownHandler for the first that nobody knows."""
    for handler in handlers:
        if handler not in known:
            raise UnknownHandler(handler, sorted(known))


async def store_batch(
    store: BatchStore, names: Names, options: SubmitOptions, items: Items, payload_limit: int
) -> tuple[UUID, SubmitOutcome]:
    """Stores the batch in one transaction, or finds the one that has its key.

    Any number of concurrent submits of one key make one batch; the others wait for it. Raises InvalidItem,
    DuplicateItemKey, KeyConflict or KeyBusy, and then nothing was stored.
    """
    batch_id = uuid4()
    key = str(uuid4()) if options.key is None else options.key
    async with store.submitting() as submission:
        owner = await submission.lock_key(options.handler, key, batch_id)
        if owner == batch_id:
            batch = NewBatch(
                batch_id,
                options.handler,
                key,
                names.workflow_id(options.handler, key),
                options.title,
                {},
                options.limits.deadline,
            )
            await _copy(submission, batch, options, items, payload_limit)
            return batch_id, SubmitOutcome.STARTED
    fingerprint = Fingerprint()
    async for chunk in chunks(items, payload_limit):
        for item in chunk:
            fingerprint.add(item.key, item.payload)
    return owner, await _join(store, options, key, owner, fingerprint.digest())


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


async def _join(store: BatchStore, options: SubmitOptions, key: str, owner: UUID, fingerprint: bytes) -> SubmitOutcome:
    batch = await store.read_batch(owner)
    if batch is None or batch.fingerprint != fingerprint:
        raise KeyConflict(options.handler, key, owner)
    outcome = SubmitOutcome.ALREADY_DONE if batch.closed else SubmitOutcome.JOINED
    await store.add_duplicate(owner, options.origin, outcome)
    return outcome


async def check_batch(store: BatchStore, options: SubmitOptions, items: Items, payload_limit: int) -> int:
    """How many items there are, once each is known to be one that `store_batch` would store. Stores and locks nothing.

    Raises InvalidItem, DuplicateItemKey or KeyConflict as that would. Takes about 150 bytes of memory for each item.
    """
    fingerprint = Fingerprint()
    positions: dict[bytes, int] = {}
    async for chunk in chunks(items, payload_limit):
        for item in chunk:
            position = len(positions)
            first = positions.setdefault(blake2b(item.key.encode(), digest_size=16).digest(), position)
            if first != position:
                raise DuplicateItemKey(item.key, first, position)
            fingerprint.add(item.key, item.payload)
    owner = None if options.key is None else await store.find_batch(options.handler, options.key)
    batch = None if owner is None else await store.read_batch(owner)
    if batch is not None and batch.fingerprint != fingerprint.digest():
        raise KeyConflict(options.handler, batch.key, batch.id)
    return len(positions)
