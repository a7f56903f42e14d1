"""`http.request` against a real server on this machine."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import ValidationError

from fanout.errors import MissingExtra, PermanentError
from fanout.handlers import http_request
from fanout.handlers.context import Context
from fanout.handlers.http_request import HttpCall, HttpRequests, make
from fanout.settings import Settings

CTX = Context(batch_id=UUID(int=7), handler="http.request", key="k", item_key="i", seq=3, attempt=1, epoch=1)
LIMIT_BYTES = 10_000


class Answers(BaseHTTPRequestHandler):
    """Answers by the path, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append({"method": self.command, "path": self.path, "headers": headers, "body": sent.decode()})
        status, extra, body = {
            "/json": (200, {"Content-Type": "application/json"}, b'{"seen": true}'),
            "/broken-json": (200, {"Content-Type": "application/json"}, b'{"seen": tr'),
            "/deep-json": (200, {"Content-Type": "application/json"}, b"[" * 5_000),
            "/text": (200, {"Content-Type": "text/plain; charset=latin-1"}, "grün".encode("latin-1")),
            "/unknown-charset": (200, {"Content-Type": "text/plain; charset=nonsense"}, "grün".encode()),
            "/no-charset": (200, {"Content-Type": "text/plain; charset=idna"}, b"\xffa"),
            "/nothing": (204, {}, b""),
            "/busy": (429, {"Retry-After": "7"}, b"later"),
            "/wrong": (422, {}, b"no"),
            "/down": (503, {}, b""),
            "/moved": (302, {"Location": "/json"}, b""),
            "/full": (200, {}, b"x" * LIMIT_BYTES),
            "/large": (200, {}, b"x" * (LIMIT_BYTES + 1)),
        }[self.path]
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = answer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stays quiet."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    handler = type("Remembering", (Answers,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def asked(server: ThreadingHTTPServer) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = vars(server.RequestHandlerClass)["asked"]
    return asked


@pytest.fixture
def base(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
async def requests() -> AsyncIterator[HttpRequests]:
    sender = HttpRequests(Settings(http_allow=("127.0.0.1",), max_payload_bytes=LIMIT_BYTES))
    yield sender
    await sender.close()


async def refusal(requests: HttpRequests, url: str) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        await requests.request(HttpCall(url=url), CTX)
    return caught.value


async def test_the_payload_is_posted_as_json_under_the_items_key(
    requests: HttpRequests, base: str, asked: list[dict[str, Any]]
) -> None:
    call = HttpCall(url=f"{base}/json", body={"n": 1, "text": "grün \ud800"}, headers={"X-Team": "papers"})
    answer = await requests.request(call, CTX)
    assert (answer.status, answer.body) == (200, {"seen": True})
    assert asked[0]["method"] == "POST"
    assert json.loads(asked[0]["body"]) == {"n": 1, "text": "grün \ud800"}
    assert asked[0]["headers"]["content-type"] == "application/json"
    assert asked[0]["headers"]["idempotency-key"] == f"{UUID(int=7)}/3"
    assert asked[0]["headers"]["x-team"] == "papers"


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, ""),
        ({"body": None}, "null"),
        ({"method": "GET", "body": 1}, ""),
        ({"method": "PUT", "body": [1]}, "[1]"),
    ],
)
async def test_a_body_is_sent_where_there_is_one(
    requests: HttpRequests, base: str, asked: list[dict[str, Any]], fields: dict[str, Any], sent: str
) -> None:
    await requests.request(HttpCall(url=f"{base}/nothing", **fields), CTX)
    assert asked[0]["body"] == sent
    assert asked[0]["method"] == fields.get("method", "POST")


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/text", 200, "grün"),
        ("/unknown-charset", 200, "grün"),
        ("/no-charset", 200, "\ufffda"),
        ("/nothing", 204, None),
        ("/broken-json", 200, '{"seen": tr'),
        ("/deep-json", 200, "[" * 5_000),
        ("/full", 200, "x" * LIMIT_BYTES),
    ],
)
async def test_other_answers_are_text(requests: HttpRequests, base: str, path: str, status: int, body: str) -> None:
    answer = await requests.request(HttpCall(url=base + path), CTX)
    assert (answer.status, answer.body) == (status, body)


@pytest.mark.parametrize(("path", "status"), [("/busy", 429), ("/wrong", 422), ("/down", 503)])
async def test_an_error_status_is_raised_with_its_response(
    requests: HttpRequests, base: str, path: str, status: int
) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        await requests.request(HttpCall(url=base + path), CTX)
    assert caught.value.response.status_code == status
    assert caught.value.response.headers.get("Retry-After") == ("7" if status == 429 else None)


async def test_a_redirect_is_not_followed(requests: HttpRequests, base: str, asked: list[dict[str, Any]]) -> None:
    assert (await refusal(requests, f"{base}/moved")).code == "redirected"
    assert [request["path"] for request in asked] == ["/moved"]


async def test_an_answer_over_the_limit_is_refused(requests: HttpRequests, base: str) -> None:
    error = await refusal(requests, f"{base}/large")
    assert error.code == "response_too_large"
    assert str(LIMIT_BYTES) in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.invalid/",
        "http://127.0.0.1.example.invalid/",
        "http://127.0.0.1@example.invalid/",
        "http://name:secret@127.0.0.1/",
        "http://example.invalid#@127.0.0.1",
        "http://[::1]/",
        "http://localhost/",
        "http://2130706433/",
        "http://127.0.0.1./",
    ],
)
async def test_only_listed_hosts_are_called(requests: HttpRequests, url: str) -> None:
    assert (await refusal(requests, url)).code == "host_not_allowed"


async def test_a_refused_host_is_told_which_setting_allows_it(requests: HttpRequests) -> None:
    error = await refusal(requests, "https://Example.invalid/path")
    assert str(error) == "the host example.invalid:443 is not listed in FANOUT_HTTP_ALLOW"


@pytest.mark.parametrize(
    ("allow", "url", "allowed"),
    [
        ("Example.INVALID", "http://example.invalid/", True),
        ("example.invalid:8080", "http://example.invalid:8080/", True),
        ("example.invalid:8080", "http://example.invalid:8081/", False),
        ("example.invalid:443", "https://EXAMPLE.invalid/", True),
        ("example.invalid:443", "http://example.invalid/", False),
        ("[::1]:80", "http://[::1]/", True),
        ("example.invalid", "http://sub.example.invalid/", False),
        ("", "http://example.invalid/", False),
    ],
)
def test_an_entry_names_a_host_or_a_host_with_its_port(allow: str, url: str, allowed: bool) -> None:
    requests = HttpRequests(Settings.from_environment({"FANOUT_HTTP_ALLOW": allow}))
    if allowed:
        assert requests.checked(url) == httpx.URL(url)
    else:
        with pytest.raises(PermanentError, match="FANOUT_HTTP_ALLOW"):
            requests.checked(url)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "ftp://example.invalid/"},
        {"url": "file:///etc/hostname"},
        {"url": "http://a/", "method": "DELETE"},
        {"url": "http://a/", "headers": {"Host": "b"}},
        {"url": "http://a/", "headers": {"idempotency-key": "mine"}},
        {"url": "http://a/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://a/", "headers": {"X Y": "a"}},
    ],
)
def test_a_call_that_cannot_be_sent_is_an_invalid_payload(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HttpCall(**fields)


BROKEN = ["http://", "http:///path", "http://a:99999/", "http://a\0b/", "http://[::1/", "http://xn--a/"]


@pytest.mark.parametrize("url", BROKEN)
async def test_a_broken_url_fails_the_item_at_once(requests: HttpRequests, url: str) -> None:
    assert (await refusal(requests, url)).code in {"invalid_url", "host_not_allowed"}


async def test_without_httpx_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "httpx", None)
    request = make(Settings(http_allow=("127.0.0.1",)))
    with pytest.raises(MissingExtra, match=r"temporal-fanout\[http\]"):
        await request(HttpCall(url="http://127.0.0.1/"), CTX)
