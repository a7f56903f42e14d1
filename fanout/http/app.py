"""The whole interface as an app."""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fanout.http import signing_in
from fanout.http.bodies import BodyLimits
from fanout.http.guard import Guard, Rules
from fanout.http.pages import dashboard
from fanout.http.problems import MEDIA_TYPE, answer
from fanout.http.router import NO_LIMITS_GIVEN, router
from fanout.http.service import ClientSource

TITLE = "Fanout"
VERSION = "0.1.0"


def app(client: ClientSource, limits: BodyLimits = NO_LIMITS_GIVEN, rules: Rules | None = None) -> ASGIApp:
    """The interface and its dashboard as an ASGI app, to be served or mounted; what goes wrong in it is problem JSON.

    Without `rules` it lets everybody in: whatever it is mounted in answers for that.
    """
    made = _App(title=TITLE, version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False)
    for kind in (HTTPException, RequestValidationError, Exception):
        made.add_exception_handler(kind, _tell)
    made.include_router(router(client, limits))
    made.include_router(dashboard(client))
    if rules is None:
        return made
    made.include_router(signing_in.routes(rules.sessions))
    return Guard(made, rules)


async def _tell(request: Request, error: Exception) -> Response:
    return answer(error)


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """As FastAPI has it, but that problems are problem JSON alone."""
        schema = super().openapi()
        for operations in schema["paths"].values():
            for operation in operations.values():
                for response in operation["responses"].values():
                    content = response.get("content", {})
                    if MEDIA_TYPE in content:
                        content.pop("application/json", None)
        return schema
