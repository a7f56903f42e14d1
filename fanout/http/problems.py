"""One shape for everything that goes wrong: RFC 9457 problem JSON."""

import logging
from collections.abc import Mapping, Sequence
from http.client import responses
from typing import Any
from uuid import UUID

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from temporalio.service import RPCError

from fanout.errors import (
    DuplicateItemKey,
    FanoutError,
    InvalidItem,
    InvalidRequest,
    KeyBusy,
    KeyConflict,
    KeyHeld,
    OversizedItem,
    SchemaMismatch,
    ServerUnreachable,
    UnknownBatch,
    UnknownItem,
    shorten,
)
from fanout.store import OUTAGE

log = logging.getLogger("fanout.http")

MEDIA_TYPE = "application/problem+json"
DETAIL_CHARACTERS = 2_000
# The first that fits counts.
_STATUSES: tuple[tuple[type[FanoutError], int], ...] = (
    (ServerUnreachable, 503),
    (SchemaMismatch, 503),
    (UnknownBatch, 404),
    (UnknownItem, 404),
    (KeyConflict, 409),
    (KeyHeld, 409),
    (KeyBusy, 409),
    (OversizedItem, 413),
    (InvalidRequest, 422),
)
_LATER = {"Retry-After": "5"}
"""Of every 503, and of a key that is busy."""


class ProblemItem(BaseModel):
    """Which item is meant: its position, counted from 0, and its key where it has one."""

    model_config = ConfigDict(frozen=True)

    position: int
    key: str | None = None


class Problem(BaseModel):
    """What went wrong, by RFC 9457: programs go by `code`, people read `detail`; what does not apply is absent."""

    model_config = ConfigDict(frozen=True)

    type: str = "about:blank"
    title: str = Field(description="The status in words.")
    status: int
    code: str = Field(description="Stable, and meant for programs.")
    detail: str
    item: ProblemItem | None = None
    path: str | None = Field(
        None,
        description="Where it stands: a JSON Pointer into the body, `?name` of the query, or `line 7` of JSON Lines.",
    )
    limit: int | None = Field(None, description="The limit that was passed, in bytes or items.")
    batch_id: UUID | None = Field(None, description="The batch that is in the way.")
    setting: str | None = Field(None, description="The setting that chose a server that is not as it should be.")


class Refusal(HTTPException):
    """A request that the interface itself refuses."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.facts = facts


def unauthorized() -> Refusal:
    """What somebody is told who brings neither token nor session."""
    header = {"WWW-Authenticate": "Bearer"}
    return Refusal(401, "unauthorized", "the header Authorization with the API's token is needed", header)


class Placed(Exception):
    """An error of the product, and where in the request its cause stands."""

    def __init__(self, error: FanoutError, path: str | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.path = path


def answer(error: Exception) -> Response:
    """The problem that an exception is told as; what nobody foresaw is logged with its traceback."""
    status, code, detail, headers, facts = _told(error)
    if status == 503 or code == KeyBusy.code:
        headers = {**_LATER, **headers}
    problem = Problem(
        title=_phrase(status),
        status=status,
        code=code,
        detail=shorten(detail, DETAIL_CHARACTERS),
        **facts,
    )
    return Response(problem.model_dump_json(exclude_none=True), status, headers, MEDIA_TYPE)


Told = tuple[int, str, str, Mapping[str, str], dict[str, Any]]


def _told(error: Exception) -> Told:
    match error:
        case Refusal():
            return error.status_code, error.code, str(error.detail), error.headers or {}, error.facts
        case AnyHTTPException():
            return _of_framework(error)
        case RequestValidationError():
            return _of_validation(error)
        case Placed():
            status, code, detail, headers, facts = _of_product(error.error)
            return status, code, detail, headers, {**facts, "path": error.path}
        case FanoutError():
            return _of_product(error)
    return _of_surroundings(error)


def _of_surroundings(error: Exception) -> Told:
    match error:
        case RPCError():
            return 503, ServerUnreachable.code, f"Temporal does not answer: {error.status.name}", {}, {}
        case _ if isinstance(error, OUTAGE):
            return 503, ServerUnreachable.code, f"PostgreSQL does not answer: {type(error).__name__}", {}, {}
        case ClientDisconnect():
            # Nobody is there to read it.
            return 400, "disconnected", "the body ended before its time", {}, {}
    log.error("a request failed", exc_info=error)
    return 500, "internal_error", f"{type(error).__name__}; the log of the server says more", {}, {}


def _of_framework(error: AnyHTTPException) -> Told:
    code = _phrase(error.status_code).lower().replace(" ", "_")
    return error.status_code, code, str(error.detail), error.headers or {}, {}


def _phrase(status: int) -> str:
    """A status in words; that of an app around us may be none that has any."""
    return responses.get(status, f"Status {status}")


def _of_validation(error: RequestValidationError) -> Told:
    first = error.errors()[0]
    place, *names = first["loc"]
    path = _pointer(names) if place == "body" else f"?{'.'.join(map(str, names))}"
    return 422, InvalidRequest.code, f"{path}: {first['msg']}", {}, {"path": path}


def _pointer(names: Sequence[str | int]) -> str:
    """A JSON Pointer, of names that may be anybody's and of any length."""
    return "/" + "/".join(shorten(str(name).replace("~", "~0").replace("/", "~1")) for name in names)


def _of_product(error: FanoutError) -> Told:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status == 500:
        log.error("a request failed", exc_info=error)
    return status, error.code, str(error), {}, _facts(error)


def _facts(error: FanoutError) -> dict[str, Any]:
    match error:
        case ServerUnreachable():
            return {"setting": error.chosen_by}
        case KeyConflict():
            return {"batch_id": error.batch_id, **_difference(error)}
        case KeyHeld():
            return {"batch_id": error.holder}
        case InvalidItem():
            return {"item": ProblemItem(position=error.position, key=error.key), "limit": error.limit}
        case DuplicateItemKey():
            return {"item": ProblemItem(position=error.positions[1], key=error.key)}
    return {}


def _difference(error: KeyConflict) -> dict[str, Any]:
    found = error.difference
    if found is None or found.position is None:
        return {}
    return {"item": ProblemItem(position=found.position, key=found.key)}
