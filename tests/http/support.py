"""What the tests of the HTTP interface share."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from starlette.types import ASGIApp

JSON_LINES = {"content-type": "application/x-ndjson"}


def caller(app: ASGIApp, **options: Any) -> httpx.AsyncClient:
    """A client of an app in this process."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", **options)


def lines(items: Iterable[Any]) -> str:
    """JSON Lines."""
    return "".join(json.dumps(item) + "\n" for item in items)


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer tells; its shape is looked at here, once for all."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), (
        response.text
    )
    found: dict[str, Any] = response.json()
    assert {"type", "title", "status", "code", "detail"} <= found.keys()
    assert (found["status"], found["code"]) == (status, code), found
    assert None not in found.values()
    return found


def check_schema(openapi: dict[str, Any], method: str, path: str, response: httpx.Response) -> None:
    """Holds a real answer against what the schema says of that endpoint."""
    operation = openapi["paths"][path][method.lower()]
    media_type = response.headers["content-type"].partition(";")[0]
    schema = operation["responses"][str(response.status_code)]["content"][media_type]["schema"]
    Draft202012Validator({**schema, "components": openapi["components"]}).validate(response.json())
