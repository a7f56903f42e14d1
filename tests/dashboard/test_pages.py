"""The dashboard's files: how they are served, and what no script of theirs may do."""

import re

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from fanout import Settings
from fanout.devstack import Stack
from fanout.http import Rules, Sessions, app, dashboard, router
from fanout.servers import ServerOptions, choose_servers
from tests.http.support import caller, problem
from tests.support import ROOT, Deployment

FOLDER = ROOT / "fanout" / "http" / "dashboard"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
# Ways from a text to markup, code or style, and addresses that leave the server.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc"
    r"|\beval\b|new Function|javascript:|cssText|\"style\"|\bstyle=|\bon\w+=[\"']|<style|\bimport\(|localStorage"
)


def test_no_script_makes_markup_of_text_and_nothing_comes_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text()
        assert FORBIDDEN.findall(text) == [], path.name
        assert len(text.splitlines()) < 400 or path.suffix == ".css", path.name
        addresses = [found for found in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in found]
        assert addresses == [], path.name
        assert re.findall(r"(?:href|src|from|fetch|EventSource)\s*[=(]?\s*[\"'`]/(?!/)", text) == [], path.name


async def test_every_file_is_served_once_with_its_type_and_a_strict_policy(fanout: Deployment) -> None:
    guarded = app(fanout.client, rules=Rules(Sessions("secret")))
    async with caller(guarded) as client:
        for path in ["/", *(f"/dashboard/{file.name}" for file in FOLDER.iterdir())]:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            kind = TYPES[path[path.rindex(".") :]] if "." in path else "text/html"
            assert answer.headers["content-type"].startswith(kind)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == (
                "nosniff",
                "no-referrer",
            )
            tag = answer.headers["etag"]
            again = await client.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            assert (await client.head(path)).status_code == 200
        problem(await client.get("/about"), 401, "unauthorized")
        for missing in ("/dashboard/other.js", "/dashboard/..%2Fapp.py", "/dashboard/%2e%2e"):
            assert (await client.get(missing)).status_code == 404


async def test_another_app_takes_the_dashboard_in_under_a_prefix(fanout: Deployment) -> None:
    host = FastAPI()
    host.include_router(router(fanout.client), prefix="/jobs")
    host.include_router(dashboard(fanout.client), prefix="/jobs")
    async with caller(host) as client:
        for path in ("/jobs/", "/jobs/dashboard/app.js", "/jobs/batches", "/jobs/about"):
            assert (await client.get(path)).status_code == 200, path
        assert (await client.get("/jobs")).headers["location"].endswith("/jobs/")
        assert "/jobs/about" not in (await client.get("/openapi.json")).json()["paths"]


async def test_the_web_ui_is_the_dev_stacks_or_what_the_setting_says(stack: Stack, fanout: Deployment) -> None:
    settings = Settings(ui_url="https://temporal.example.com/", database_url=SecretStr("postgresql://x/y"))
    elsewhere = ServerOptions(address="temporal.example.com:7233")
    assert choose_servers(settings, stack, elsewhere).ui_url == "https://temporal.example.com/"
    assert choose_servers(settings, stack, ServerOptions(only_stack=True)).ui_url == stack.ui_url
    assert choose_servers(Settings(), stack, elsewhere).ui_url is None
    async with caller(app(fanout.client)) as client:
        assert (await _about(client)) is None


async def _about(client: httpx.AsyncClient) -> str | None:
    found: str | None = (await client.get("/about")).json()["workflows_url"]
    return found
