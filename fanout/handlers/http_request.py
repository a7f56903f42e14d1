"""The built-in handler `http.request`: an item is worked by whatever answers at a URL, in any language."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

from pydantic import BaseModel, JsonValue, field_validator

from fanout.errors import MissingExtra, PermanentError, shorten
from fanout.handlers.context import Context
from fanout.settings import Settings

try:
    import httpx
except ImportError:
    httpx = None  # type: ignore[assignment]

NAME = "http.request"
CONNECT_SECONDS = 10.0
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,8000}")
# Another Host would reach a neighbour of the allowed host; the others describe the body, which is ours.
OUR_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "idempotency-key"})


class HttpCall(BaseModel):
    """One request. Without `body` none is sent; with it, even if null, it goes out as JSON."""

    url: str
    method: Literal["POST", "PUT", "PATCH", "GET"] = "POST"
    body: JsonValue = None
    headers: dict[str, str] = {}

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, url: str) -> str:
        if not url.lower().startswith(("http://", "https://")):
            raise ValueError("the URL must start with http:// or https://")
        return url

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in OUR_HEADERS:
                raise ValueError(f"the header {name!r} is set by Fanout")
            if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the header {name!r} cannot be sent")
        return headers


class HttpAnswer(BaseModel):
    """The answer to a request: JSON where the server says that it is, else text; null where it is empty."""

    status: int
    body: Any


class HttpRequests:
    """Sends the requests of one process, over one pool of connections for each event loop.

    Only hosts in FANOUT_HTTP_ALLOW are called: `host` allows all its ports, `host:port` that one alone.
    Redirects and the environment's proxies and credentials would lead elsewhere, so none is used.
    """

    def __init__(self, settings: Settings) -> None:
        self._allow = frozenset(entry.lower() for entry in settings.http_allow)
        self._max_response_bytes = settings.max_payload_bytes
        self._concurrency = settings.concurrency
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def request(self, call: HttpCall, ctx: Context) -> HttpAnswer:
        """Sends one request, with the item's idempotency key as a header, and reads the answer up to a limit.

        A request whose answer was lost is sent again under the same key. Raises httpx.HTTPStatusError for a
        status of 400 and above, PermanentError with the code host_not_allowed, invalid_url, redirected or
        response_too_large, and MissingExtra without httpx.
        """
        if httpx is None:
            raise MissingExtra(NAME, "http")
        url = self.checked(call.url)
        async with self._client().stream(
            call.method, url, content=_content(call), headers=_headers(call, ctx)
        ) as response:
            if 300 <= response.status_code < 400:
                raise PermanentError(f"{url.host} answered with a redirect, which is not followed", code="redirected")
            response.raise_for_status()
            return HttpAnswer(status=response.status_code, body=await self._read(response))

    async def close(self) -> None:
        """Closes the running loop's connections; a later request opens new ones."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def checked(self, address: str) -> "httpx.URL":
        """The URL, if its host may be called. Raises PermanentError."""
        try:
            url = httpx.URL(address)
            host = f"[{url.host}]" if ":" in url.host else url.host.lower()
        except (httpx.InvalidURL, UnicodeError) as error:
            raise PermanentError(f"{shorten(address)!r} is no URL: {error}", code="invalid_url") from None
        if url.userinfo:
            raise PermanentError("a URL with a user name or password is refused", code="host_not_allowed")
        port = url.port or (443 if url.scheme == "https" else 80)
        if self._allow.isdisjoint({host, f"{host}:{port}"}):
            reason = f"the host {shorten(host)}:{port} is not listed in FANOUT_HTTP_ALLOW"
            raise PermanentError(reason, code="host_not_allowed")
        return url

    def _client(self) -> "httpx.AsyncClient":
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # How long an answer may take is the item's deadline, not ours.
            client = httpx.AsyncClient(
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                limits=httpx.Limits(max_connections=self._concurrency, max_keepalive_connections=self._concurrency),
                follow_redirects=False,
                trust_env=False,
            )
            self._clients[loop] = client
        return client

    async def _read(self, response: "httpx.Response") -> Any:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > self._max_response_bytes:
                reason = f"the answer is larger than {self._max_response_bytes} bytes"
                raise PermanentError(reason, code="response_too_large")
        return _parsed(bytes(data), response)


def make(settings: Settings) -> Callable[[HttpCall, Context], Awaitable[HttpAnswer]]:
    """The function of the handler `http.request` for one process; only calling it needs httpx."""
    requests = HttpRequests(settings)

    async def request(call: HttpCall, ctx: Context) -> HttpAnswer:
        return await requests.request(call, ctx)

    return request


def _content(call: HttpCall) -> bytes | None:
    if call.method == "GET" or "body" not in call.model_fields_set:
        return None
    return json.dumps(call.body, separators=(",", ":")).encode()


def _headers(call: HttpCall, ctx: Context) -> dict[str, str]:
    ours = {"Idempotency-Key": ctx.idempotency_key}
    if _content(call) is not None and "content-type" not in {name.lower() for name in call.headers}:
        ours["Content-Type"] = "application/json"
    return {**call.headers, **ours}


def _parsed(data: bytes, response: "httpx.Response") -> Any:
    if not data:
        return None
    if "json" in response.headers.get("content-type", "").lower():
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            pass
    try:
        return data.decode(response.charset_encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        # A charset that nobody knows, or that is none for texts.
        return data.decode("utf-8", "replace")
