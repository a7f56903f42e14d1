"""Who works, and what can be worked."""

from fastapi import APIRouter

from fanout.client.fleet import known_handlers, worker_facts
from fanout.http.models import HandlerList, KnownHandler, LiveWorker, WorkerList
from fanout.http.routes import ApiRoute, problems
from fanout.http.service import TheClient

routes = APIRouter(route_class=ApiRoute)


@routes.get("/handlers", response_model=HandlerList, responses=problems())
async def list_handlers(client: TheClient) -> HandlerList:
    """The handlers that live workers know, or that the client of this interface was given."""
    found = known_handlers(await client.workers(), client.handlers)
    return HandlerList(handlers=[KnownHandler(**handler) for handler in found])


@routes.get("/workers", response_model=WorkerList, responses=problems())
async def list_workers(client: TheClient) -> WorkerList:
    """The live workers."""
    return WorkerList(workers=[LiveWorker(**worker_facts(worker)) for worker in await client.workers()])
