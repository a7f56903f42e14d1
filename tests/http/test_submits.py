"""Submits over HTTP: what is refused stores nothing and is named, and what is stored is whole."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fanout.http import BodyLimits, app, bodies
from fanout.http.service import SUBMITS_AT_ONCE
from tests.http.support import JSON_LINES, caller, lines, problem
from tests.support import Deployment

KNOWN = {"allow_unknown": True}
QUERY = {"handler": "test.echo", "key": "k", "allow_unknown": "true"}


def body(items: Any, **more: Any) -> dict[str, Any]:
    return {"handler": "test.echo", "key": "k", "items": items, "options": KNOWN, **more}


def raw(items: str) -> bytes:
    """A body that no JSON library would write."""
    return f'{{"handler":"test.echo","key":"k","items":{items},"options":{{"allow_unknown":true}}}}'.encode()


async def stored(fanout: Deployment) -> int:
    return int(
        await fanout.pool.fetchval(
            "select (select count(*) from fanout.batches) + (select count(*) from fanout.items)"
            " + (select count(*) from fanout.results) + (select count(*) from fanout.keys)"
        )
    )


HOSTILE: list[tuple[bytes, int, str, str, str | None]] = [
    (b"", 422, "invalid_json", "not JSON", "/"),
    (b"{", 422, "invalid_json", "not JSON", "/"),
    (b"[]", 422, "invalid_request", "JSON object, not list", None),
    (b"null", 422, "invalid_request", "not NoneType", None),
    (raw('["\xff"]').replace(b"\xc3\xbf", b"\xff"), 422, "invalid_json", "not UTF-8", "/"),
    (raw("[NaN]"), 422, "invalid_json", "NaN", "/"),
    (raw("[1e400]"), 422, "invalid_json", "1e400", "/"),
    (raw("[" + "9" * 5_000 + "]"), 422, "invalid_json", "not JSON", "/"),
    (raw('[{"a":1,"a":2}]'), 422, "invalid_json", "stands twice", "/"),
    (raw('["\\ud800"]'), 422, "invalid_json", "lone surrogate", "/"),
    (raw('["a\\u0000"]'), 422, "invalid_json", "U+0000", "/"),
    (raw("[" * 100_000 + "]" * 100_000), 422, "invalid_json", "nesting", "/"),
    (b"[" * 100_000, 422, "invalid_json", "nesting", "/"),
    (raw("null"), 422, "invalid_request", "items", None),
    (b'{"handler":"test.echo","key":"k"}', 422, "invalid_request", "items", None),
    (b'{"items":[1]}', 422, "invalid_request", "handler", None),
    (json.dumps(body([1], handler="No+Name")).encode(), 422, "invalid_request", "handler", None),
    (json.dumps(body([1], options={})).encode(), 422, "unknown_handler", "test.echo", None),
    (json.dumps(body([1], options=[1])).encode(), 422, "invalid_request", "options", None),
    (json.dumps(body([1], options={"key": "k"})).encode(), 422, "invalid_request", "'key' in options", None),
    (json.dumps(body([1], options={"deadline": "soon"})).encode(), 422, "invalid_request", "deadline", None),
    (json.dumps(body([1], titel="x")).encode(), 422, "invalid_request", "'titel'", None),
    (json.dumps(body([1], key=5)).encode(), 422, "invalid_request", "key", None),
    (json.dumps(body([1], key="a\nb")).encode(), 422, "invalid_request", "key", None),
    (json.dumps(body([1, {"key": 7, "payload": 1}])).encode(), 422, "invalid_item", "item 1", "/items/1"),
    (json.dumps(body([{"key": "é" * 201, "payload": 1}])).encode(), 422, "invalid_item", "402 bytes", "/items/0"),
    (
        json.dumps(body([{"key": "a", "payload": 1}, {"key": "a", "payload": 2}])).encode(),
        422,
        "duplicate_item_key",
        "positions 0 and 1",
        "/items/1",
    ),
    (json.dumps(body([1, "x" * 1_048_576])).encode(), 413, "invalid_item", "1048578 bytes", "/items/1"),
]


async def test_a_bad_body_is_named_and_stores_nothing(fanout: Deployment, api: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    for content, status, code, said, path in HOSTILE:
        found = problem(await api.post("/batches", content=content, headers=headers), status, code)
        assert said in found["detail"], found
        assert found.get("path") == path, found
    assert found["limit"] == 1_048_576
    assert found["item"] == {"position": 1, "key": "1"}
    assert await stored(fanout) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/plain"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_what_a_form_can_send_is_no_submit(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    for path in ("/batches", "/batches/test.echo%2Fk/cancel"):
        response = await api.post(path, content=json.dumps(body([1])), headers=headers)
        problem(response, 415, "unsupported_media_type")


async def test_json_lines_are_stored_as_they_stand(fanout: Deployment, api: httpx.AsyncClient) -> None:
    content = "\ufeff" + lines([{"key": "a", "payload": {"n": 1}}]) + "\r\n" + '{"key":"b","payload":1.0}'
    options = {"title": "two", "max_failures": "5%", "dedup": "open", "range_size": "7"}
    response = await api.post("/batches", params={**QUERY, **options}, content=content, headers=JSON_LINES)
    assert response.status_code == 201, response.text
    assert response.headers["location"] == f"/batches/{response.json()['batch_id']}"
    status = (await api.get(response.headers["location"])).json()
    assert (status["title"], status["total"], status["max_failures"]) == ("two", 2, "5%")
    batch = await fanout.client.get("test.echo/k")
    assert [(row.item_key, row.payload) async for row in batch.results(with_payload=True)] == [
        ("a", {"n": 1}),
        ("b", 1.0),
    ]
    assert (await batch.read()).options["range_size"] == 7
    again = await api.post("/batches", json=body([{"key": "a", "payload": {"n": 1}}, {"key": "b", "payload": 1.0}]))
    assert (again.status_code, again.json()["outcome"]) == (200, "joined")
    assert [each.origin for each in await batch.duplicates()] == ["http"]


BAD_LINES: list[tuple[str | bytes, int, str, str]] = [
    ('1\n2\n{"a"\n', 422, "invalid_item", "line 3"),
    ('1\n\n\n{"a":1,"a":2}\n', 422, "invalid_item", "line 4"),
    (b"1\n\xff\n", 422, "invalid_item", "line 2"),
    ("[" * 100_000, 422, "invalid_item", "line 1"),
    ('{"key":"a","payload":1}\n{"key":"b","payload":1}\n{"key":"a","payload":1}', 422, "duplicate_item_key", "line 3"),
    ('{"key":"a","payload":1}\n2\n', 422, "invalid_item", "line 2"),
    (f'1\n"{"x" * 1_048_576}"\n2\n', 413, "invalid_item", "line 2"),
    ("1\n" + " " * 6_400_000, 413, "invalid_item", "line 2"),
]


async def test_a_bad_line_is_named_and_stores_nothing(fanout: Deployment, api: httpx.AsyncClient) -> None:
    for content, status, code, path in BAD_LINES:
        found = problem(await api.post("/batches", params=QUERY, content=content, headers=JSON_LINES), status, code)
        assert found["path"] == path, found
    for query in ({"handler": "test.echo", "titel": "x"}, {**QUERY, "range_size": "many"}, {"key": "k"}):
        problem(await api.post("/batches", params=query, content="1\n", headers=JSON_LINES), 422, "invalid_request")
    problem(await api.post("/batches?key=k", json=body([1])), 422, "invalid_request")
    no_options: list[Any] = [[], 0, "", False]
    for options in no_options:
        problem(await api.post("/batches", json={**body([1]), "options": options}), 422, "invalid_request")
    assert await stored(fanout) == 0


async def test_limits_hold_whether_or_not_the_size_is_told(fanout: Deployment) -> None:
    async def pieces() -> Any:
        for _ in range(100):
            yield b"1\n" * 100

    async with caller(app(fanout.client, BodyLimits(body_bytes=1_000, items=10))) as api:
        cases: list[tuple[Any, str, int]] = [(b"1\n" * 501, "body_too_large", 1_000), (pieces(), "too_many_items", 10)]
        for content, code, limit in cases:
            response = await api.post("/batches", params=QUERY, content=content, headers=JSON_LINES)
            assert problem(response, 413, code)["limit"] == limit
        found = problem(await api.post("/batches", json=body([*range(11)])), 413, "too_many_items")
        assert (found["limit"], found["path"]) == (10, "/items")
        assert (await api.post("/batches", json=body([*range(10)]))).status_code == 201
    assert await fanout.pool.fetchval("select count(*) from fanout.items") == 10


async def paced(count: int, piece: bytes, seconds: float) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield piece
        await asyncio.sleep(seconds)


async def test_slow_senders_are_refused_and_make_room(fanout: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may submit at once, none of them ever silent; one who keeps the pace takes as long as it likes."""
    monkeypatch.setattr(bodies, "SILENCE_SECONDS", 5.0)
    monkeypatch.setattr(bodies, "LINGER_SECONDS", 0.1)
    async with caller(app(fanout.client, BodyLimits(bytes_per_second=100)), timeout=60) as api:

        async def post(key: str, content: AsyncIterator[bytes]) -> httpx.Response:
            return await api.post("/batches", params={**QUERY, "key": key}, content=content, headers=JSON_LINES)

        slow = [post(f"slow-{n}", paced(2_000, b"1\n", 0.05)) for n in range(SUBMITS_AT_ONCE)]
        *refused, answer = await asyncio.gather(*slow, post("steady", paced(30, b"1\n" * 50, 0.1)))
        for each in refused:
            assert "100 bytes" in problem(each, 408, "body_timeout")["detail"]
        assert (answer.status_code, answer.json()["total"]) == (201, 1_500)
        assert await fanout.pool.fetchval("select count(*) from fanout.items") == 1_500
        whole = await api.post(
            "/batches", content=paced(2_000, b" ", 0.05), headers={"content-type": "application/json"}
        )
        problem(whole, 408, "body_timeout")


async def test_many_posts_of_one_key_start_one_batch(fanout: Deployment, api: httpx.AsyncClient) -> None:
    """Half of them with other items, as JSON Lines: they are told the item that differs."""
    items = [{"key": f"k{n}", "payload": n} for n in range(2_000)]
    other = lines([*items[:1_500], {"key": "k1500", "payload": "x"}, *items[1_501:]])

    async def post(number: int) -> httpx.Response:
        if number % 2:
            return await api.post("/batches", params=QUERY, content=other, headers=JSON_LINES)
        return await api.post("/batches", json=body(items))

    first = await api.post("/batches", json=body(items))
    answers = await asyncio.gather(*map(post, range(12)))
    assert first.status_code == 201
    assert Counter(answer.status_code for answer in answers) == {200: 6, 409: 6}
    told = problem(answers[1], 409, "key_conflict")
    assert (told["path"], told["item"]) == ("line 1501", {"position": 1500, "key": "k1500"})
    assert told["batch_id"] == first.json()["batch_id"]
    racing = await asyncio.gather(*(api.post("/batches", json=body([1, 2], key="race")) for _ in range(12)))
    assert Counter(answer.status_code for answer in racing) == {201: 1, 200: 11}
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.chaos, id="full size")])
async def test_many_items_come_in_either_form(fanout: Deployment, api: httpx.AsyncClient, count: int) -> None:
    items = [{"n": n} for n in range(count)]
    lined = await api.post("/batches", params=QUERY, content=lines(items), headers=JSON_LINES, timeout=120)
    whole = await api.post("/batches", json=body(items), timeout=120)
    assert (lined.status_code, whole.status_code) == (201, 200), whole.text
    assert await fanout.pool.fetchval("select count(*) from fanout.results") == count
