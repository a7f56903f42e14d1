"""Items on their way into a batch: which keys and payloads are refused, and by which position and limit."""

import tracemalloc
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from fanout import InvalidRequest, Item
from fanout.client.items import CHUNK_ITEMS, Items, check_key, chunks
from fanout.errors import InvalidItem

LIMIT = 1_000


async def stored(items: Items, limit: int = LIMIT) -> list[tuple[str, str]]:
    return [(item.key, item.payload) async for chunk in chunks(items, limit) for item in chunk]


async def refusal(items: Items, limit: int = LIMIT) -> InvalidItem:
    with pytest.raises(InvalidItem) as refused:
        await stored(items, limit)
    return refused.value


async def test_items_without_keys_are_known_by_their_positions() -> None:
    assert await stored([None, {"key": "k"}, Item(3)]) == [("0", "null"), ("1", '{"key":"k"}'), ("2", "3")]
    assert await stored(iter(())) == []
    assert await stored(range(2)) == [("0", "0"), ("1", "1")]
    assert await stored({"x"}) == [("0", '"x"')]


async def test_items_may_come_asynchronously() -> None:
    async def papers() -> AsyncIterator[Any]:
        yield Item(1, key="a")
        yield Item(2, key="b")

    assert await stored(papers()) == [("a", "1"), ("b", "2")]


class Paper(BaseModel):
    path: str


@pytest.mark.parametrize(
    "items",
    [None, 5, "text", b"text", bytearray(b"x"), {"a": 1}, OrderedDict(a=1), MappingProxyType({"a": 1}), Item(1)],
    ids=repr,
)
async def test_what_is_no_series_of_payloads_is_refused(items: Any) -> None:
    """Also where it could be walked through, as a dict or a text."""
    with pytest.raises(InvalidRequest, match="items must be an iterable"):
        await stored(items)


async def test_one_model_is_not_taken_for_a_series_of_its_fields() -> None:
    with pytest.raises(InvalidRequest, match="not Paper"):
        await stored(Paper(path="/a"))
    assert await stored([Paper(path="/a")]) == [("0", '{"path":"/a"}')]


GOOD_KEYS = ["123", "a/b", "a:b", "ключ", ".", "..", "%2F", " ", "a ", "1", "é", "e\u0301", "\u2028", "🙂", "k" * 400]


async def test_odd_keys_are_kept_to_the_letter() -> None:
    """Neither trimmed nor normalised, so two spellings are two items."""
    assert [key for key, _ in await stored([Item(None, key=key) for key in GOOD_KEYS])] == GOOD_KEYS


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is empty"),
        ("k" * 401, "401 bytes"),
        ("€" * 134, "402 bytes"),
        ("a\nb", "control character"),
        ("\0", "control character"),
        ("\x7f", "control character"),
        ("\x85", "control character"),
        ("\x9f", "control character"),
        ("\ud800", "surrogate"),
    ],
    ids=ascii,
)
async def test_a_bad_key_is_refused_with_its_position(key: str, reason: str) -> None:
    error = await refusal([Item(1, key="good"), Item(2, key=key)])
    assert (error.position, error.key) == (1, key)
    assert reason in str(error)
    assert str(error).startswith("item 1 ")
    str(error).encode()


@pytest.mark.parametrize("key", [1, 1.5, True, b"a", ("a",)], ids=repr)
async def test_a_key_that_is_no_string_is_refused_with_its_position(key: Any) -> None:
    error = await refusal([Item(1, key="a"), Item(2, key=key)])
    assert error.position == 1
    assert type(key).__name__ in str(error)
    assert (await refusal([Item(1, key=key)])).position == 0


async def test_either_all_items_name_a_key_or_none_does() -> None:
    for items in (
        [Item(1, key="a"), Item(2)],
        [Item(1), Item(2, key="a")],
        [Item(1, key="a"), 2],
        [1, Item(2, key="")],
    ):
        error = await refusal(items)
        assert error.position == 1
        assert "all items name a key or none" in str(error)


@pytest.mark.parametrize(("key", "fits"), [("k" * 150, True), ("€" * 50, True), ("k" * 151, False), ("€" * 51, False)])
def test_a_batch_s_key_has_a_limit_in_bytes(key: str, fits: bool) -> None:
    if fits:
        assert check_key(key) == key
        return
    with pytest.raises(InvalidRequest, match="the limit is 150 bytes"):
        check_key(key)


@pytest.mark.parametrize("key", ["", "a\nb", "\x9f", "\ud800", 5, None], ids=ascii)
def test_other_batch_keys_are_refused(key: Any) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        check_key(key)


@pytest.mark.parametrize("letter", ["a", "é", "🙂", "\\"])
async def test_a_payload_at_the_limit_passes_and_one_byte_more_is_refused(letter: str) -> None:
    size = len(letter.encode()) * (2 if letter == "\\" else 1)
    limit = 2 + 100 * size
    assert len((await stored([letter * 100], limit))[0][1].encode()) == limit
    error = await refusal([None, letter * 100], limit - 1)
    assert (error.position, error.key, error.limit) == (1, "1", limit - 1)
    assert f"{limit} bytes" in str(error)
    assert f"the limit is {limit - 1} bytes" in str(error)


@pytest.mark.parametrize("payload", [float("nan"), "\0", "\ud800", {object()}, {1: 1, "1": 2}, [10**5000]])
async def test_a_payload_that_cannot_be_stored_is_refused_with_its_item(payload: Any) -> None:
    error = await refusal([Item(1, key="a"), Item(payload, key="b")])
    assert (error.position, error.key) == (1, "b")
    assert "cannot be stored" in str(error)


async def test_an_error_of_the_caller_s_own_iterable_passes_through() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stored(broken())


async def test_any_number_of_items_passes_in_bounded_memory() -> None:
    tracemalloc.start()
    try:
        sizes = [
            len(chunk) async for chunk in chunks(({"n": number, "x": "y" * 200} for number in range(23_000)), LIMIT)
        ]
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 23_000
    assert max(sizes) == CHUNK_ITEMS


async def test_large_payloads_make_small_chunks() -> None:
    sizes = [len(chunk) async for chunk in chunks(("x" * 1_000_000 for _ in range(20)), 2_000_000)]
    assert sum(sizes) == 20
    assert max(sizes) <= 8
