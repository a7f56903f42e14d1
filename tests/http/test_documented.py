"""What the page on the interface names exists, and what exists is named."""

from typing import cast

from fastapi import FastAPI

from fanout import FanoutClient
from fanout.http import Rules, Sessions, app
from fanout.http.guard import Guard
from tests.support import ROOT
from tests.test_docs import first_words, section, source_codes

PAGE = (ROOT / "docs" / "http.md").read_text()
METHODS = {"get", "post", "delete"}


def unasked() -> FanoutClient:
    raise AssertionError("nothing is asked")


def test_every_endpoint_is_documented() -> None:
    guard = cast(Guard, app(unasked, rules=Rules(Sessions("x"))))
    made = cast(FastAPI, guard._app)
    paths = made.openapi()["paths"]
    existing = {f"{method.upper()} {path}" for path, methods in paths.items() for method in METHODS & methods.keys()}
    assert first_words(section(PAGE, "## Endpoints")) == existing


def test_every_code_of_the_interface_is_documented() -> None:
    codes = source_codes(r'Refusal\(\s*\d+, "([a-z_]+)"', "fanout/http/*.py")
    codes |= source_codes(r'return \d+, "([a-z_]+)"', "fanout/http/problems.py")
    assert first_words(section(PAGE, "## Problems")) == codes | {"not_found", "method_not_allowed"}
