"""Batches: the list, one of them, and what steers it. The answers are those of the command line."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from fanout.client import BatchHandle, Status
from fanout.http import cursors
from fanout.http.models import BatchPage, CancelBody, NoBody, Retried, RetryBody
from fanout.http.routes import ApiRoute, problems
from fanout.http.service import TheBatch, TheClient
from fanout.names import HANDLER_NAME
from fanout.states import BatchStatus

routes = APIRouter(route_class=ApiRoute)
PAGE_BATCHES = 50
MOST_BATCHES = 200
Cursor = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]
HandlerFilter = Annotated[str | None, Query(pattern=f"^{HANDLER_NAME.pattern}$", description="Only this handler's.")]
Limit = Annotated[int, Query(ge=1, le=MOST_BATCHES)]


@routes.get("/batches", response_model=BatchPage, responses=problems())
async def list_batches(
    client: TheClient,
    status: BatchStatus | None = None,
    handler: HandlerFilter = None,
    cursor: Cursor = None,
    limit: Limit = PAGE_BATCHES,
) -> BatchPage:
    """A page of batches, newest first; what is submitted or changes meanwhile moves no batch to another page."""
    after = cursors.read_time_and_id(cursor)
    found = await client.store.browsing.page_batches(status, handler, after, limit + 1)
    page = found[:limit]
    following = None
    if len(found) > limit:
        created_at, batch_id = page[-1]
        following = cursors.write(created_at.isoformat(), str(batch_id))
    batches = [await BatchHandle(client, batch_id).progress() for _, batch_id in page]
    return BatchPage(batches=batches, next=following)


@routes.get("/batches/{batch}", response_model=Status, responses=problems(404))
async def show_batch(batch: TheBatch) -> Status:
    """One batch, by its id or as HANDLER%2FKEY."""
    return await batch.progress()


@routes.post("/batches/{batch}/cancel", response_model=Status, responses=problems(404, 413, 415))
async def cancel_batch(batch: TheBatch, body: CancelBody | None = None) -> Status:
    """Once this answers no item starts any more, and running ones have 30 s to end; a closed batch stays as it is."""
    return await batch.cancel(None if body is None else body.reason)


@routes.post("/batches/{batch}/pause", response_model=Status, responses=problems(404, 413, 415))
async def pause_batch(batch: TheBatch, body: NoBody | None = None) -> Status:
    """Once this answers no item starts any more; running ones go on."""
    return await batch.pause()


@routes.post("/batches/{batch}/resume", response_model=Status, responses=problems(404, 413, 415))
async def resume_batch(batch: TheBatch, body: NoBody | None = None) -> Status:
    """Lets a paused batch go on; any other stays as it is."""
    return await batch.resume()


@routes.post("/batches/{batch}/retry", response_model=Retried, responses=problems(404, 409, 413, 415))
async def retry_batch(batch: TheBatch, body: RetryBody | None = None) -> Retried:
    """Runs failed items again, or cancelled ones, in an open batch or a closed one."""
    wanted = body or RetryBody()
    retried = await batch.retry(**wanted.model_dump())
    return Retried(**asdict(retried))
