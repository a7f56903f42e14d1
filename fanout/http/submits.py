"""`POST /batches`: a batch as one JSON object, or its items as JSON Lines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.requests import Request
from fastapi.responses import Response

from fanout.client import BatchHandle, Items, SubmitOutcome
from fanout.client.limits import failures_in
from fanout.client.requests import Request as BatchRequest
from fanout.errors import DuplicateItemKey, InvalidItem, InvalidRequest, KeyConflict, shorten
from fanout.http.bodies import JSON, JSON_LINES, WHOLE_BYTES, ApiRequest, JsonLines, check_count
from fanout.http.models import SubmitBody, SubmitQuery, SubmitSettings, Submitted
from fanout.http.problems import Placed, Refusal
from fanout.http.routes import ApiRoute, inlined, problems
from fanout.http.service import Service, TheService

routes = APIRouter(route_class=ApiRoute)
TURN_SECONDS = 30.0
ORIGIN = "http"
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": inlined(SubmitBody)},
            JSON_LINES[0]: {"schema": {"type": "string", "description": "An item a line, as in `items`."}},
        },
    }
}
_JOINED = {"model": Submitted, "description": "Joined, or already done."}


@routes.post(
    "/batches",
    status_code=201,
    response_model=Submitted,
    responses={200: _JOINED, **problems(408, 409, 413, 415)},
    openapi_extra=_BODY,
)
async def submit_batch(
    request: Request, response: Response, service: TheService, query: Annotated[SubmitQuery, Query()]
) -> Submitted:
    """Stores a batch, all of its items or on any error none of them, and starts it.

    The same key with the same items joins the batch that has it.
    """
    assert isinstance(request, ApiRequest)
    wanted = await _read(request, service, query)
    async with _turn(service):
        batch = await _submit(service, wanted)
    row = await batch.read()
    if batch.outcome is SubmitOutcome.STARTED:
        response.headers["Location"] = f"{quote(request.scope['path'])}/{batch.batch_id}"
    else:
        response.status_code = 200
    facts = {"workflow_id": row.workflow_id, "handler": row.handler, "key": row.key, "total": row.total}
    return Submitted(batch_id=batch.batch_id, outcome=batch.outcome or SubmitOutcome.STARTED, **facts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A submit, with its items as they come."""

    asked: BatchRequest
    items: Items
    lines: JsonLines | None

    def place(self, error: InvalidItem | DuplicateItemKey | KeyConflict) -> str | None:
        """Where the item that an error is about stands."""
        if isinstance(error, KeyConflict):
            position = None if error.difference is None else error.difference.position
        else:
            position = error.position if isinstance(error, InvalidItem) else error.positions[1]
        if position is None or self.lines is None:
            return None if position is None else f"/items/{position}"
        line = self.lines.line if isinstance(error, InvalidItem) else self.lines.line_of(position)
        return None if line is None else f"line {line}"


async def _read(request: ApiRequest, service: Service, query: SubmitQuery) -> _Wanted:
    given = query.model_dump(exclude_none=True)
    payload_limit = service.client.settings.max_payload_bytes
    request.bytes_per_second = service.limits.bytes_per_second
    if request.check_type(JSON, *JSON_LINES) == JSON:
        if given:
            raise InvalidRequest(f"{', '.join(given)} of a submit in JSON stands in its body, not in the query")
        request.limit_bytes = min(service.limits.body_bytes, max(WHOLE_BYTES, 2 * payload_limit))
        asked = BatchRequest.read(_flat(await request.json()), ORIGIN)
        check_count(len(asked.items), service.limits.items, "/items")
        return _Wanted(asked, asked.each(), None)
    failures = {"max_failures": failures_in(query.max_failures)} if query.max_failures else {}
    lines = JsonLines(request, service.limits, payload_limit)
    return _Wanted(BatchRequest.read({**given, **failures, "items": []}, ORIGIN), lines, lines)


def _flat(body: Any) -> Any:
    """The body as a start without our client would bring it: with its options beside the rest."""
    if not isinstance(body, dict):
        return body
    options = {} if body.get("options") is None else body["options"]
    if not isinstance(options, dict):
        raise InvalidRequest(f"options is an object, not {type(options).__name__}")
    _refuse_others("a submit", body, [*SubmitBody.model_fields])
    _refuse_others("options", options, [*SubmitSettings.model_fields])
    options = {name: value for name, value in options.items() if value is not None}
    return {**{name: value for name, value in body.items() if name != "options"}, **options}


def _refuse_others(what: str, given: dict[str, Any], names: list[str]) -> None:
    for name in given:
        if name not in names:
            raise InvalidRequest(f"there is no {shorten(repr(name))} in {what}; there are {', '.join(names)}")


async def _submit(service: Service, wanted: _Wanted) -> BatchHandle:
    asked = wanted.asked
    try:
        return await service.client.submit_with(asked.options, wanted.items, allow_unknown=asked.allow_unknown)
    except (InvalidItem, DuplicateItemKey, KeyConflict) as error:
        raise Placed(error, wanted.place(error)) from error


@asynccontextmanager
async def _turn(service: Service) -> AsyncIterator[None]:
    """One of the few submits that run at once; raises Refusal where none ends for a while."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await service.submits.acquire()
    except TimeoutError:
        raise Refusal(503, "busy", f"no other submit has ended for {TURN_SECONDS:g} s") from None
    try:
        yield
    finally:
        service.submits.release()
