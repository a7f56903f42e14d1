"""The dashboard: a page, its scripts and its style, served from the package beside the endpoints that they use."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from fanout.client import FanoutClient
from fanout.http.models import Answer
from fanout.http.problems import Refusal
from fanout.http.routes import AnyQueryRoute
from fanout.http.service import ClientSource, connected

FOLDER = "dashboard"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        # No text ever becomes markup or a script, whatever a page of ours is made to do.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    # Asked for every time and hardly ever sent: after an upgrade no page meets the scripts of another version.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class About(Answer):
    """What the pages need to know of where they are: the address of the workflows in Temporal's Web UI, if known."""

    workflows_url: str | None


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str

    def answer(self, request: Request) -> Response:
        headers = {**HEADERS, "ETag": self.tag}
        if self.tag in [
            each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
        ]:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def dashboard(client: ClientSource) -> APIRouter:
    """The dashboard's routes, for the prefix that has the endpoints: `app.include_router(dashboard(client), prefix=…)`.

    Every address in the pages is relative, so that any prefix will do. The pages themselves tell nothing and may be
    open to all; what they show is what the endpoints answer to whoever looks.
    """
    made = APIRouter(route_class=AnyQueryRoute, include_in_schema=False)
    found = _read_files()

    @made.api_route("/", methods=["GET", "HEAD"])
    async def show_page(request: Request) -> Response:
        return found["index.html"].answer(request)

    @made.api_route(f"/{FOLDER}/{{name}}", methods=["GET", "HEAD"])
    async def send_file(request: Request, name: str) -> Response:
        if name not in found:
            raise Refusal(404, "not_found", f"the dashboard has no file {name[:100]!r}")
        return found[name].answer(request)

    @made.get("/about", response_model=About)
    async def show_about() -> About:
        return About(workflows_url=_workflows_url(connected(client)))

    return made


def _read_files() -> dict[str, _File]:
    made = {}
    for path in files(__package__).joinpath(FOLDER).iterdir():
        content = path.read_bytes()
        media_type = TYPES[f".{path.name.rpartition('.')[2]}"]
        made[path.name] = _File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return made


def _workflows_url(client: FanoutClient) -> str | None:
    base = None if client.servers is None else client.servers.ui_url
    return None if base is None else f"{base.rstrip('/')}/namespaces/{client.temporal.namespace}/workflows"
