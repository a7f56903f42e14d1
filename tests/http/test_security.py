"""Who may call, from which page, and by which name of the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import APIKeyQuery

from fanout.errors import InvalidSetting
from fanout.http import Rules, Sessions, app, bearer, router
from fanout.settings import Settings
from tests.http.support import JSON_LINES, caller, problem
from tests.support import Deployment

TOKEN = "a long random text"
BEARER = {"authorization": f"Bearer {TOKEN}"}
OURS = {"origin": "http://localhost"}
COOKIE = Sessions(TOKEN).cookie


@asynccontextmanager
async def guarded(fanout: Deployment, token: str | None = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
    rules = Rules(None if token is None else Sessions(token))
    async with caller(app(fanout.client, rules=rules)) as api:
        yield api


async def test_without_the_token_nothing_is_told(fanout: Deployment) -> None:
    wrong = [
        {},
        {"authorization": ""},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": "Bearer a long random tex"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}=99999999999.x." + "0" * 64},
        {"cookie": f"{COOKIE}="},
        {"cookie": f"\x01=;;; {COOKIE}"},
    ]
    async with guarded(fanout) as api:
        for headers in wrong:
            for method, path in (("GET", "/batches"), ("POST", "/batches"), ("GET", "/nope"), ("GET", "/openapi.json")):
                found = await api.request(method, path, headers=headers)
                problem(found, 401, "unauthorized")
                assert found.headers["www-authenticate"] == "Bearer"
        assert (await api.get("/batches", headers=BEARER)).status_code == 200
        assert (await api.get("/batches", headers={"authorization": f"bearer  {TOKEN}"})).status_code == 200
        assert (await api.get("/health")).status_code == (await api.get("/ready")).status_code == 200


async def test_a_browser_signs_in_once_and_out_for_good(fanout: Deployment) -> None:
    async with guarded(fanout) as api:
        assert (await api.get("/session")).json() == {"needed": True, "signed_in": False}
        problem(await api.post("/session", json={"token": "wrong"}, headers=OURS), 401, "unauthorized")
        found = problem(await api.post("/session", json={"token": TOKEN, "a/b~": 1}), 422, "invalid_request")
        assert found["path"] == "/a~1b~0"
        problem(await api.post("/session", data={"token": TOKEN}), 415, "unsupported_media_type")
        problem(
            await api.post("/session", json={"token": TOKEN}, headers={"origin": "http://evil"}), 403, "wrong_origin"
        )
        signed = await api.post("/session", json={"token": TOKEN}, headers=OURS)
        assert signed.json() == {"needed": True, "signed_in": True}
        cookie = signed.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= {*cookie.split("; ")}
        assert ("Secure" in cookie, TOKEN in cookie) == (False, False)
        assert (await api.get("/batches")).status_code == 200
        missing = "/batches/test.echo%2Fk/cancel"
        problem(await api.post(missing), 403, "wrong_origin")
        problem(await api.post(missing, headers={"origin": "http://localhost:1"}), 403, "wrong_origin")
        problem(await api.post(missing, headers=OURS), 404, "unknown_batch")
        stolen = api.cookies[COOKIE]
        # What other servers of this host have set comes along: browsers do not tell ports apart.
        for other in (f"{Sessions('another').cookie}=x", "version=1", 'seen={"a": [1, 2]}', "x[é]=1", "=", "no value"):
            both = f"{other}; {COOKIE}={stolen}; {other}".encode()
            assert (await api.get("/batches", headers={b"cookie": both})).status_code == 200, other
        assert (await api.request("DELETE", "/session", headers=OURS)).json() == {"needed": True, "signed_in": False}
        api.cookies.clear()
        problem(await api.get("/batches", headers={"cookie": f"{COOKIE}={stolen}"}), 401, "unauthorized")


def test_a_session_holds_on_every_replica_and_dies_with_the_token() -> None:
    cookie = Sessions(TOKEN).begin()
    assert Sessions(TOKEN).holds(cookie)
    assert not Sessions(TOKEN + "x").holds(cookie)
    until, secret, signature = cookie.split(".")
    for forged in (
        f"{int(until) + 1}.{secret}.{signature}",
        f"{until}.{secret}",
        "é",
        "",
        cookie[:-1],
        cookie + "\ud800",
    ):
        assert not Sessions(TOKEN).holds(forged)


HOSTS = [
    ("localhost", None, 200),
    ("localhost:8080", None, 200),
    ("LOCALHOST", None, 200),
    ("127.0.0.1:1", None, 200),
    ("[::1]:8080", None, 200),
    ("evil.example", None, 403),
    ("evil.example:8080", "http://evil.example:8080", 403),
    ("localhost.evil.example", None, 403),
    ("127.0.0.1.evil.example", None, 403),
    ("localhost@evil.example", None, 403),
    ("[", None, 403),
    ("", None, 403),
    ("localhost:8080", "http://localhost:8080", 200),
    ("localhost:8080", "http://localhost:3000", 403),
    ("localhost:8080", "http://127.0.0.1:8080", 403),
    ("localhost:8080", "https://evil.example", 403),
    ("localhost:8080", "null", 403),
    ("localhost:8080", "http://[", 400),
]


async def test_without_a_token_no_other_page_and_no_other_name_reaches_anything(fanout: Deployment) -> None:
    async with guarded(fanout, None) as api:
        for host, origin, status in HOSTS:
            headers = {"host": host} if origin is None else {"host": host, "origin": origin}
            for method, path in (("GET", "/health"), ("GET", "/batches"), ("POST", "/batches/test.echo%2Fk/cancel")):
                answer = await api.request(method, path, headers=headers)
                expected = 404 if status == 200 and method == "POST" else status
                assert answer.status_code == expected, (host, origin, path, answer.text)
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert "access-control-allow-origin" not in answer.headers
        assert (await api.get("/session")).json() == {"needed": False, "signed_in": True}


async def test_a_preflight_allows_nothing(fanout: Deployment) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for token in (None, TOKEN):
        async with guarded(fanout, token) as api:
            problem(await api.options("/batches", headers=headers), 403, "wrong_origin")


# The second is how a prefix with a parameter of that app's is asked for, whatever stands in it.
PREFIXES = [("", ""), ("/fanout/v1", "/fanout/v1"), ("/of/{tenant}", "/of/%E6%97%A5%0D%0Ax")]


@pytest.mark.parametrize(("mounted", "prefix"), PREFIXES)
async def test_the_router_works_in_somebody_elses_app(fanout: Deployment, mounted: str, prefix: str) -> None:
    """Its problems are problems there too; who may call is that app's affair, with our dependency if it likes."""
    theirs = FastAPI()
    theirs.include_router(router(lambda: fanout.client), prefix=mounted, dependencies=[Depends(bearer(TOKEN))])
    async with caller(theirs) as api:
        problem(await api.get(f"{prefix}/batches"), 401, "unauthorized")
        api.headers.update(BEARER)
        body = {"handler": "test.echo", "key": "a/items", "items": [1], "options": {"allow_unknown": True}}
        started = await api.post(f"{prefix}/batches", json=body)
        assert started.headers["location"] == f"{prefix}/batches/{started.json()['batch_id']}"
        page = await api.get(f"{prefix}/batches/test.echo%2Fa%2Fitems/items")
        assert page.json()["items"][0]["item_key"] == "0", page.text
        problem(await api.get(f"{prefix}/batches/test.echo%2Fa"), 404, "unknown_batch")
        problem(await api.get(f"{prefix}/batches?limit=0"), 422, "invalid_request")
        assert (await api.get(f"{prefix}/nope")).json() == {"detail": "Not Found"}


async def test_the_app_works_in_any_asgi_app(fanout: Deployment) -> None:
    theirs = FastAPI()
    theirs.mount("/jobs", app(fanout.client))
    async with caller(theirs) as api:
        assert (await api.get("/jobs/ready")).json() == {"status": "ready"}
        problem(await api.get("/jobs/batches/test.echo%2Fk"), 404, "unknown_batch")
        problem(await api.get("/jobs/nope"), 404, "not_found")
        problem(await api.put("/jobs/batches"), 405, "method_not_allowed")
        problem(await api.get("/jobs/batches/"), 404, "not_found")


async def test_what_an_app_around_takes_from_the_query_is_let_through(fanout: Deployment) -> None:
    async def tenant(tenant: str, tag: Annotated[list[str], Query()]) -> None:
        assert (tenant, tag) == ("a", ["1", "2"])

    made = FastAPI()
    key = APIKeyQuery(name="api_key")
    made.include_router(router(fanout.client), prefix="/jobs", dependencies=[Depends(tenant), Depends(key)])
    async with caller(made) as api:
        path = "/jobs/batches?tenant=a&tag=1&tag=2&api_key=x"
        assert (await api.get(path)).status_code == 200
        problem(await api.get(f"{path}&tenants=b"), 422, "invalid_request")
        problem(await api.get(f"{path}&tenant=a"), 422, "invalid_request")


async def test_an_address_that_is_not_utf_8_is_refused(fanout: Deployment) -> None:
    """Read as the sign for what cannot be read, two keys would be one, and a cancel could reach the other's batch."""
    known = await fanout.client.submit("test.echo", [1], key="bad\ufffd", allow_unknown=True)
    async with caller(app(fanout.client)) as api:
        for key in ("bad%fe", "bad%ff"):
            path = f"/batches?handler=test.echo&allow_unknown=true&key={key}"
            problem(await api.post(path, content=b"1", headers=JSON_LINES), 422, "invalid_request")
        problem(await api.get("/batches?handler=%ff"), 422, "invalid_request")
        problem(await api.post("/batches/test.echo%2Fbad%fe/cancel"), 404, "unknown_batch")
    assert not (await known.read()).closed
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1


async def test_a_status_that_only_an_app_around_knows_is_a_problem_too(fanout: Deployment) -> None:
    async def refuse() -> None:
        raise HTTPException(498, "no such token any more")

    made = FastAPI()
    made.include_router(router(fanout.client), dependencies=[Depends(refuse)])
    async with caller(made) as api:
        assert problem(await api.get("/batches"), 498, "status_498")["title"] == "Status 498"


@pytest.mark.parametrize("wrong", ["a b", "é", "a\nb", " ", "a\x00", "\x7f"])
def test_a_token_that_no_header_can_bring_is_refused_at_start(wrong: str) -> None:
    with pytest.raises(InvalidSetting, match="FANOUT_API_TOKEN: takes visible ASCII"):
        Settings.from_environment({"FANOUT_API_TOKEN": wrong})
    found = Settings.from_environment({"FANOUT_API_TOKEN": " a-~!\r\n"}).api_token
    assert found is not None
    assert found.get_secret_value() == "a-~!"
