"""Pages that stay true while rows move, and searches that look at a bounded number of rows."""

import base64
import json
from typing import Any

import httpx
import pytest

from fanout import Item
from fanout.http import items
from tests.http.support import problem
from tests.support import Deployment

MOVE = """update fanout.results set status = $3, claim_id = gen_random_uuid(), worker_id = gen_random_uuid(),
    settled_at = clock_timestamp(), result = case $3 when 'completed' then '1'::jsonb end,
    error = case $3 when 'failed' then jsonb_build_object('type', $4::text, 'code', 'c', 'message', 'm') end
    where batch_id = $1 and seq = any($2)"""


async def pages(api: httpx.AsyncClient, path: str, name: str, **query: Any) -> list[dict[str, Any]]:
    """All rows of a list, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        response = await api.get(path, params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        found += page[name]
        if page["next"] is None:
            return found
        query["cursor"] = page["next"]


async def test_batches_come_once_each_while_others_are_submitted(fanout: Deployment, api: httpx.AsyncClient) -> None:
    async def submit(key: str, handler: str = "test.echo") -> str:
        return str((await fanout.client.submit(handler, [1], key=key, allow_unknown=True)).batch_id)

    made = [await submit(f"k{number}", "test.echo" if number % 2 else "test.other") for number in range(9)]
    # Created in one instant, as the batches of one transaction are.
    await fanout.pool.execute("update fanout.batches set created_at = '2026-01-01' where id = any($1)", made[:4])
    first = (await api.get("/batches?limit=2")).json()
    await submit("late")
    await fanout.client.store.cancel_batch((await fanout.client.get(made[5])).batch_id, None)
    rest = await pages(api, "/batches", "batches", limit=2, cursor=first["next"])
    assert [each["batch_id"] for each in (*first["batches"], *rest)] == [*made[:3:-1], *sorted(made[:4])]
    odd = await pages(api, "/batches", "batches", limit=3, handler="test.echo")
    assert {each["key"] for each in odd} == {"k1", "k3", "k5", "k7", "late"}
    assert [each["key"] for each in await pages(api, "/batches", "batches", status="cancelling")] == ["k5"]
    assert await pages(api, "/batches", "batches", status="paused") == []


async def test_items_come_once_each_while_they_settle(fanout: Deployment, api: httpx.AsyncClient) -> None:
    batch = await fanout.client.submit("test.echo", range(500), key="k", allow_unknown=True)
    path = f"/batches/{batch.batch_id}/items"
    first = (await api.get(path, params={"status": "pending", "limit": 100})).json()
    # Those that were seen, and some that were not, settle before the next page.
    await fanout.pool.execute(MOVE, batch.batch_id, [*range(100), *range(200, 300)], "completed", None)
    rest = await pages(api, path, "items", status="pending", limit=100, cursor=first["next"])
    seqs = [row["seq"] for row in (*first["items"], *rest)]
    assert seqs == [*range(200), *range(300, 500)]
    assert len(await pages(api, path, "items", limit=77)) == 500


async def test_a_few_are_found_among_many(
    fanout: Deployment, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By state, type of error, and the beginning of the key; whatever a page finds, the next goes on behind it."""
    keys = [f"paper {number:04}" for number in range(1_000)] + ["ü1", "ü2", "\U0010ffff", "\U0010ffffa", "\ud7ff1", "z"]
    batch = await fanout.client.submit("test.echo", [Item(1, key) for key in keys], key="k", allow_unknown=True)
    path = f"/batches/{batch.batch_id}/items"
    await fanout.pool.execute(MOVE, batch.batch_id, [7, 500, 999, 1_001], "failed", "Odd")
    await fanout.pool.execute(MOVE, batch.batch_id, [8], "failed", "Other")
    monkeypatch.setattr(items, "WINDOW_ROWS", 100)
    monkeypatch.setattr(items, "WINDOW_KEYS", 100)

    async def seqs(**query: Any) -> list[int]:
        return [row["seq"] for row in await pages(api, path, "items", **query)]

    # Without any patience each page looks at one window, and most are empty.
    for patience in (0.5, -1.0):
        monkeypatch.setattr(items, "SEARCH_SECONDS", patience)
        assert await seqs(error_type="Odd", limit=2) == [7, 500, 999, 1_001]
        assert await seqs(status="failed", error_code="c") == [7, 8, 500, 999, 1_001]
        assert await seqs(prefix="paper 000", limit=3) == [*range(10)]
        assert await seqs(prefix="ü") == [1_000, 1_001]
        assert await seqs(prefix="ü", status="failed") == [1_001]
        assert await seqs(prefix="paper", error_type="Odd", limit=1) == [7, 500, 999]
        assert await seqs(prefix="\U0010ffff", limit=1) == [1_002, 1_003]
        assert await seqs(prefix="\ud7ff") == [1_004]
        assert await seqs(prefix="nothing") == []
    problem(await api.get(path, params={"key": "nope"}), 404, "unknown_item")
    problem(await api.get(path, params={"key": "z", "status": "failed"}), 422, "invalid_request")


async def test_a_big_result_is_left_out_of_pages(fanout: Deployment, api: httpx.AsyncClient) -> None:
    batch = await fanout.client.submit("test.echo", [1, 2], key="k", allow_unknown=True)
    await fanout.pool.execute(MOVE, batch.batch_id, [0, 1], "completed", None)
    for size, left_out in ((32_766, False), (32_767, True)):
        await fanout.pool.execute(
            "update fanout.results set result = to_jsonb(repeat('x', $2)) where batch_id = $1 and seq = 1",
            batch.batch_id,
            size,
        )
        for query in ("", "?prefix=1"):
            *_, row = (await api.get(f"/batches/{batch.batch_id}/items{query}")).json()["items"]
            assert row["result_left_out"] == left_out
    await fanout.pool.execute(
        "update fanout.results set result = to_jsonb(repeat('x', 500000)) where batch_id = $1 and seq = 1",
        batch.batch_id,
    )
    small, big = (await api.get(f"/batches/{batch.batch_id}/items")).json()["items"]
    assert (small["result"], small["result_left_out"]) == (1, False)
    assert (big["result"], big["result_left_out"]) == (None, True)
    whole = (await api.get(f"/batches/{batch.batch_id}/items?key=1")).json()
    assert (len(whole["result"]), whole["result_left_out"]) == (500_000, False)


# Times that are none in UTC.
EDGES = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")


def forged(*place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


async def test_what_a_list_cannot_understand_is_named(fanout: Deployment, api: httpx.AsyncClient) -> None:
    batch = await fanout.client.submit("test.echo", [1], key="k", allow_unknown=True)
    path = f"/batches/{batch.batch_id}/items"
    texts = ["", "x", "é", "=", "[]", "W1" * 900]
    places: list[tuple[Any, ...]] = [(), (1, 2, 3), (-1,), (2**31,), (None,), ("a",), ("2026-01-01", "x")]
    places += [("2026-01-01", str(batch.batch_id)), ("2026-01-01T00:00:00+00:00", "x")]
    places += [(edge, str(batch.batch_id)) for edge in EDGES]
    cursors = [*texts, *(forged(*place) for place in places)]
    for cursor in cursors:
        problem(await api.get("/batches", params={"cursor": cursor}), 422, "invalid_cursor")
        problem(await api.get(path, params={"cursor": cursor}), 422, "invalid_cursor")
    for cursor in (forged(1), forged("a\0"), forged("\ud800")):
        problem(await api.get(path, params={"prefix": "a", "cursor": cursor}), 422, "invalid_cursor")
    for query in ("limit=0", "limit=99999999999999999999", "limit=x", "status=nope"):
        assert problem(await api.get(f"/batches?{query}"), 422, "invalid_request")["path"].startswith("?")
        assert problem(await api.get(f"{path}?{query}"), 422, "invalid_request")["path"].startswith("?")
    for query in ("state=failed", "limit=1&limit=2", "%00", "a=", "status"):
        assert problem(await api.get(f"/batches?{query}"), 422, "invalid_request")["path"].startswith("?")
        assert problem(await api.get(f"{path}?{query}"), 422, "invalid_request")["path"].startswith("?")
    for open_to_all in ("/?from=elsewhere", "/health?verbose"):
        assert (await api.get(open_to_all)).status_code == 200
    for query in ("prefix=", "prefix=%00", "error_type=%00", f"error_code={'x' * 500}"):
        problem(await api.get(f"{path}?{query}"), 422, "invalid_request")
    problem(await api.get("/batches?handler=%00"), 422, "invalid_request")
    for reference in ("nope", "%00", "%ff", "test.echo%2F", "test.echo%2F%00", "%2F", "a%2Fb%2Fc", "%1F", "..%2F.."):
        problem(await api.get(f"/batches/{reference}"), 404, "unknown_batch")
    problem(await api.get("/nope"), 404, "not_found")
    refused = await api.delete("/batches")
    problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"]
