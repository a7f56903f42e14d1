"""Items on their way into a batch: checked and encoded one by one, in constant memory."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from unicodedata import category

from pydantic import BaseModel

from fanout.encoding import UnstorableValue, encode
from fanout.errors import InvalidItem, InvalidRequest, OversizedItem
from fanout.names import BATCH_KEY_BYTES, ITEM_KEY_BYTES
from fanout.store import StoredItem

CHUNK_ITEMS = 5_000
CHUNK_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work: a payload that pydantic can turn into JSON, and a key that is unique in its batch.

    Either all items of a batch name a key or none does; without keys an item is known by its position: "0", "1" ….
    """

    payload: Any
    key: str | None = None


Items = Iterable[Any] | AsyncIterable[Any]


def item_in(value: Any, position: int, where: str = "") -> Item:
    """The item in a JSON value: an object whose only names are `key` and `payload` is one, anything else a payload.

    Raises InvalidItem for a key that is no string; `where` says where it stands.
    """
    if not isinstance(value, dict) or value.keys() != {"key", "payload"}:
        return Item(value)
    if not isinstance(value["key"], str):
        kind = "null" if value["key"] is None else type(value["key"]).__name__
        raise InvalidItem(position, None, f"{where}its key must be a string, not {kind}")
    return Item(value["payload"], value["key"])


def check_key(key: object) -> str:
    """A batch's key as it may be used; raises InvalidRequest."""
    if not isinstance(key, str):
        raise InvalidRequest(f"a batch's key must be a string, not {type(key).__name__}")
    reason = key_fault(key, BATCH_KEY_BYTES)
    if reason is not None:
        raise InvalidRequest(f"the batch's key {reason}; the limit is {BATCH_KEY_BYTES} bytes")
    return key


def check_words(what: str, words: object, limit: int) -> str:
    """A caller's words for people as they may be stored; raises InvalidRequest naming `what` they are."""
    if not isinstance(words, str):
        raise InvalidRequest(f"{what} must be a string, not {type(words).__name__}")
    if not 1 <= len(words) <= limit:
        raise InvalidRequest(f"{what} has 1 to {limit:,} characters, this one {len(words):,}")
    if "\0" in words or words.encode(errors="replace").decode() != words:
        raise InvalidRequest(f"{what} holds U+0000 or a lone surrogate, which PostgreSQL cannot hold")
    return words


def key_fault(key: str, limit: int) -> str | None:
    """What is wrong with a key, if anything."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "holds a lone surrogate, which is no character"
    if size == 0:
        return "is empty"
    if size > limit:
        return f"has {size} bytes"
    if not key.isprintable() and any(category(character) == "Cc" for character in key):
        return "holds a control character"
    return None


async def chunks(items: Items, limit: int) -> AsyncIterator[list[StoredItem]]:
    """Checked items in chunks of at most 5,000 and about 8 MB. Raises InvalidItem for the first bad one."""
    chunk: list[StoredItem] = []
    size = position = 0
    named: bool | None = None
    async for given in _each(items):
        item = given if isinstance(given, Item) else Item(given)
        if named is None:
            named = item.key is not None
        stored = _store(position, item, named, limit)
        chunk.append(stored)
        size += len(stored.payload)
        position += 1
        if len(chunk) == CHUNK_ITEMS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _each(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, str | bytes | bytearray | Mapping | BaseModel) or not isinstance(items, Iterable):
        raise InvalidRequest(f"items must be an iterable of payloads, not {type(items).__name__}")
    else:
        for item in items:
            yield item


def _store(position: int, item: Item, named: bool, limit: int) -> StoredItem:
    if (item.key is not None) != named:
        raise InvalidItem(position, None, "either all items name a key or none does")
    if item.key is not None and not isinstance(item.key, str):
        raise InvalidItem(position, None, f"its key must be a string, not {type(item.key).__name__}")
    key = str(position) if item.key is None else item.key
    fault = key_fault(key, ITEM_KEY_BYTES)
    if fault is not None:
        raise InvalidItem(position, key, f"its key {fault}", ITEM_KEY_BYTES)
    try:
        payload = encode(item.payload)
    except UnstorableValue as error:
        raise InvalidItem(position, key, f"its payload cannot be stored: {error}") from None
    size = len(payload) if payload.isascii() else len(payload.encode())
    if size > limit:
        raise OversizedItem(position, key, f"its payload has {size} bytes", limit)
    return StoredItem(key, payload)
