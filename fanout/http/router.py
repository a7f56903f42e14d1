"""The router: every endpoint, for whatever FastAPI app it is mounted in."""

from fastapi import APIRouter, Depends

from fanout.http import batches, events, fleet, items, probes, submits, sums
from fanout.http.bodies import BodyLimits
from fanout.http.routes import ApiRoute
from fanout.http.service import ClientSource, Service

PARTS = (submits.routes, batches.routes, events.routes, items.routes, sums.routes, fleet.routes, probes.routes)
NO_LIMITS_GIVEN = BodyLimits()


def router(client: ClientSource, limits: BodyLimits = NO_LIMITS_GIVEN) -> APIRouter:
    """All endpoints, to be included under any prefix: `app.include_router(router(client), prefix="/fanout")`.

    `client` is a connected client, or a function that gives it once requests come. The app that it is mounted in
    answers for who may call it; `bearer(token)` is a dependency that asks for a token. Errors are problem JSON in any
    app.
    """
    made = APIRouter(route_class=ApiRoute, dependencies=[Depends(Service(client, limits).provide)])
    for part in PARTS:
        made.include_router(part)
    return made
