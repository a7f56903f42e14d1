"""What stands before every endpoint of a server of ours: who may ask, and from which page."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi.requests import Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fanout.http.problems import Refusal, answer, unauthorized
from fanout.http.sessions import Sessions

LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN_PATHS = ("/health", "/ready", "/session", "/", "/dashboard/")
"""What needs no token; one that ends in a slash stands for all below it."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
}


@dataclass(frozen=True)
class Rules:
    """With `sessions` a caller has to bring the token or a cookie; without, it has to ask for one of `hosts`.

    Either way no page of another origin may ask for anything.
    """

    sessions: Sessions | None = None
    hosts: tuple[str, ...] = LOOPBACK
    open_paths: tuple[str, ...] = OPEN_PATHS

    def check(self, request: Request) -> None:
        """Raises Refusal for a request that may not go on."""
        host = request.headers.get("host", "")
        if self.sessions is None and _name(host) not in self.hosts:
            # A name that leads here without being ours: some page's own, pointed at this machine.
            detail = f"without FANOUT_API_TOKEN only {', '.join(self.hosts)} may be asked for, not {host[:100]!r}"
            raise Refusal(403, "wrong_host", detail)
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Refusal(403, "wrong_origin", f"no page of {origin[:100]!r} may ask for anything here")
        if self.sessions is not None and not self._is_open(request):
            _check_caller(self.sessions, request, origin)

    def _is_open(self, request: Request) -> bool:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        folders = tuple(each for each in self.open_paths if each.endswith("/") and each != "/")
        return path in self.open_paths or path.startswith(folders)


def _check_caller(sessions: Sessions, request: Request, origin: str | None) -> None:
    if sessions.allows(request.headers.get("authorization", "")):
        return
    if not sessions.holds(session_in(request, sessions)):
        raise unauthorized()
    if origin is None and request.method not in SAFE_METHODS:
        # Browsers send it with everything that changes something.
        raise Refusal(403, "wrong_origin", "with a session, a request that changes something names its Origin")


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def session_in(request: Request, sessions: Sessions) -> str:
    """The session's cookie of a request, or nothing; whatever other servers of this host have set beside it."""
    return request.cookies.get(sessions.cookie, "")


class Guard:
    """An app that lets through what the rules allow, and answers everything else with a problem."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; websockets are none of ours."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._rules.check(Request(scope))
        except (Refusal, ValueError) as error:
            refused = error if isinstance(error, Refusal) else Refusal(400, "bad_request", "a header cannot be read")
            response: Response = answer(refused)
            await response(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = {name.lower() for name, _ in message.get("headers", ())}
            added = [(name, value) for name, value in HEADERS.items() if name not in named]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_with_headers
