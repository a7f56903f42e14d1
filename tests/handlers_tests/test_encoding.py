"""JSON as Fanout stores it: what is kept, what is normalised, what is refused, and the digest of a request."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field

from fanout.encoding import DEPTH_LIMIT, Fingerprint, UnstorableValue, check_text, decode, encode


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


KEPT: list[Any] = [
    *({}, [], "{}", "null", None, 0, False, True, "", 12345678901234567890123, -(10**40), 1.0, 0.1, 1e22, 5e-324),
    *(1.7976931348623157e308, {"b": 1.0, "a": 1e2}, [[], {}, None], "é", "e\u0301", "🙂", "\\u0000", '"\\', "\x7f\x1f"),
]


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_a_value_comes_back_as_it_was_with_its_type(value: Any) -> None:
    for back in (json.loads(encode(value)), decode(encode(value)), decode(encode(value).encode())):
        assert repr(back) == repr(value)


def test_minus_zero_keeps_its_sign_and_names_keep_their_order() -> None:
    assert encode(-0.0) == "-0.0"
    assert str(decode("-0.0")) == "-0.0"
    assert encode({"b": 1, "a": 2}) == '{"b":1,"a":2}'


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Paper(BaseModel):
    when: datetime
    price: Decimal


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, (2,)), "[1,[2]]"),
        ({1: "a", 1.5: "b", None: "c", False: "d"}, '{"1":"a","1.5":"b","null":"c","false":"d"}'),
        ({"x"}, '["x"]'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (Path("/a"), '"/a"'),
        (b"ab", '"ab"'),
        (Point(1), '{"x":1}'),
        (Paper(when=datetime(2026, 1, 2), price=Decimal(1)), '{"when":"2026-01-02T00:00:00","price":"1"}'),
        ([Point(2)], '[{"x":2}]'),
        ((number for number in range(2)), "[0,1]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_json_is_normalised(value: Any, text: str) -> None:
    assert encode(value) == text


class Broken(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        raise KeyError("no total")


def failing() -> Iterator[int]:
    yield 1
    raise PermissionError("half-way")


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "not JSON"),
        (float("inf"), "not JSON"),
        ([-float("inf")], "not JSON"),
        ({"a": Decimal("NaN"), "b": {object()}}, "not JSON"),
        ({object(), object()}, "not JSON"),
        ({(1, 2): 3}, "not JSON"),
        ({UUID(int=1): 3}, "not JSON"),
        (b"\xff", "not JSON"),
        (10**5000, "not JSON"),
        (cyclic(), "not JSON"),
        (Broken(), "KeyError"),
        (failing(), "PermissionError"),
        ("a\0b", r"U\+0000"),
        ({"a\0": 1}, r"U\+0000"),
        ("\\\0", r"U\+0000"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (nested(DEPTH_LIMIT + 1), "nesting"),
        ({1: "a", "1": "b"}, "'1' stands twice"),
        ([{"x": ({None: 1, "null": 2},)}], "'null' stands twice"),
        ({True: 1, "true": 2}, "'true' stands twice"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_stored_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(UnstorableValue, match=reason):
        encode(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((number, "not JSON") for number in ("NaN", "Infinity", "-Infinity", "1e400", "[-1e400]", "0x1", "1" * 5000)),
        ('{"a":1,"a":2}', "'a' stands twice"),
        ('[{"x":{"b":1,"\\u0062":2}}]', "'b' stands twice"),
        ('"a\\u0000b"', r"U\+0000"),
        ('"\\ud800"', "surrogate"),
        ('{"\\uDC00":1}', "surrogate"),
        ("[" * 201 + "]" * 201, "nesting"),
        ('{"a":' * 201 + "1" + "}" * 201, "nesting"),
        *((text, "not JSON") for text in ("", "{", "{'a':1}", "[1,]", '"\n"', "nul", "1 2")),
        (b'"\xff"', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_text_of_a_caller_that_breaks_the_rule_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(UnstorableValue, match=reason):
        decode(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\u0000"', "\\u0000"),
        ('"\\\\ud800"', "\\ud800"),
        (b"\xef\xbb\xbf[1]", [1]),
        (" [1] ", [1]),
        ("1E2", 100.0),
        ('"[[[["', "[[[["),
    ],
    ids=str,
)
def test_text_of_a_caller_that_only_looks_bad_passes(text: str | bytes, value: Any) -> None:
    assert decode(text) == value


def test_200_levels_pass_and_100_000_are_refused_without_a_crash() -> None:
    deepest = encode(nested(DEPTH_LIMIT))
    assert decode(deepest) == nested(DEPTH_LIMIT)
    began = time.thread_time()
    with pytest.raises(UnstorableValue, match="nesting"):
        encode(nested(100_000))
    for opening, closing in (("[", "]"), ('{"a":', "}"), ("[[],", "]"), ("[", "")):
        with pytest.raises(UnstorableValue, match=r"nesting|not JSON"):
            decode(opening * 100_000 + "1" + closing * 100_000)
    assert time.thread_time() - began < 5


def test_brackets_in_strings_and_beside_each_other_are_no_nesting() -> None:
    assert encode(["[" * 1_000, *([[]] * 1_000), '\\"[{']) is not None
    check_text(json.dumps({"a": [{}] * 500, "b": '"[' * 500}))


def test_a_long_text_of_backslashes_is_looked_at_in_linear_time() -> None:
    began = time.thread_time()
    assert len(encode("\\" * 500_000 + "u0000")) > 1_000_000
    with pytest.raises(UnstorableValue):
        encode("\\" * 500_000 + "\0")
    assert time.thread_time() - began < 2


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_any_json_value_survives_the_round_trip(value: Any) -> None:
    text = encode(value)
    assert repr(json.loads(text)) == repr(value)
    assert repr(decode(text)) == repr(value)
    assert encode(decode(text)) == text


def digest(*items: tuple[str, Any]) -> bytes:
    fingerprint = Fingerprint()
    for key, payload in items:
        fingerprint.add(key, encode(payload))
    return fingerprint.digest()


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_a_fingerprint_does_not_see_the_order_of_names(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    assert digest(("a", value)) == digest(("a", turned)) == digest(("a", decode(encode(value))))
    assert digest(("a", [{"deep": value}])) == digest(("a", [{"deep": turned}]))


@given(VALUES, VALUES)
def test_a_fingerprint_sees_any_other_difference(one: Any, other: Any) -> None:
    def canonical(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    assert (digest(("a", one)) == digest(("a", other))) == (canonical(one) == canonical(other))


def test_a_fingerprint_tells_types_keys_order_and_borders_apart() -> None:
    requests = [
        *(
            digest(("a", value))
            for value in (1, 1.0, "1", True, None, "true", "null", [1], {"x": 1}, {"x": 1.0}, -0.0, 0)
        ),
        digest(),
        digest(("a", 1), ("b", 2)),
        digest(("b", 2), ("a", 1)),
        digest(("a", 2), ("b", 1)),
        digest(("a", 1), ("b", 2), ("c", 3)),
        digest(("a1", 1)),
        digest(("a", 11)),
        digest(("é", 1)),
        digest(("e\u0301", 1)),
        digest(("a", "é")),
        digest(("a", "e\u0301")),
    ]
    assert len(set(requests)) == len(requests)
    assert all(len(found) == 32 for found in requests)
