"""Every endpoint with a real batch, and its answers held against the schema."""

from typing import Any

import httpx

from tests.http.support import check_schema
from tests.ledger import closed
from tests.support import Deployment

ANY = {"options": {"allow_unknown": True}}
STATUS = ["batch_id", "workflow_id", "handler", "key", "title", "status", "total"]


async def submit(api: httpx.AsyncClient, *items: Any, key: str = "k", handler: str = "test.echo") -> httpx.Response:
    return await api.post("/batches", json={"handler": handler, "key": key, "items": items, **ANY})


async def test_every_answer_is_as_the_schema_says(fanout: Deployment, api: httpx.AsyncClient) -> None:
    await fanout.start_worker()
    openapi = (await api.get("/openapi.json")).json()

    async def ask(method: str, path: str, schema_path: str, status: int = 200, **given: Any) -> Any:
        response = await api.request(method, path, **given)
        assert response.status_code == status, response.text
        check_schema(openapi, method, schema_path, response)
        return response.json()

    items = [{"key": "a", "payload": {"n": 1}}, {"key": "b", "payload": [2]}]
    body = {"handler": "test.echo", "key": "a/b", "items": items, "options": {"title": "two", "max_failures": 3}}
    started = await ask("POST", "/batches", "/batches", 201, json=body)
    batch = await fanout.client.get(started["batch_id"])
    assert (started["outcome"], started["total"]) == ("started", 2)
    await closed(batch)
    done = await ask("POST", "/batches", "/batches", 200, json=body)
    assert done == {**started, "outcome": "already_done"}
    for reference in (started["batch_id"], "test.echo%2Fa%2Fb"):
        one, any_one = f"/batches/{reference}", "/batches/{batch}"
        status = await ask("GET", one, any_one)
        assert (list(status)[:7], status["completed"], status["title"]) == (STATUS, 2, "two")
        page = await ask("GET", f"{one}/items", f"{any_one}/items")
        assert [(row["seq"], row["item_key"], row["result"]) for row in page["items"]] == [
            (0, "a", {"n": 1}),
            (1, "b", [2]),
        ]
        row = await ask("GET", f"{one}/items?key=b", f"{any_one}/items")
        assert (row["payload"], row["result"], row["history"]) == ([2], [2], [])
        for verb in ("cancel", "pause", "resume"):
            assert await ask("POST", f"{one}/{verb}", f"{any_one}/{verb}") == status
        assert await ask("POST", f"{one}/retry", f"{any_one}/retry", json={}) == {
            "batch_id": started["batch_id"],
            "epoch": 1,
            "reopened": 0,
        }
        assert (await ask("GET", f"{one}/failures", f"{any_one}/failures"))["groups"] == []
        timeline = await ask("GET", f"{one}/timeline?spans=5", f"{any_one}/timeline")
        assert sum(span["completed"] for span in timeline["spans"]) == 2
        assert len(timeline["spans"]) == 5
    assert (await ask("GET", "/batches", "/batches"))["batches"] == [status]
    [worker] = (await ask("GET", "/workers", "/workers"))["workers"]
    assert "test.echo" in worker["handlers"]
    assert "test.echo" in {each["name"] for each in (await ask("GET", "/handlers", "/handlers"))["handlers"]}
    assert await ask("GET", "/health", "/health") == {"status": "ok"}
    assert await ask("GET", "/ready", "/ready") == {"status": "ready"}
    for probe in ("/health", "/ready"):
        assert (await api.head(probe)).status_code == 200
