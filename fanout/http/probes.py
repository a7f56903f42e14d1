"""Whether this process lives, whether it can work, and how the work goes."""

import asyncio
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError

from fanout.client import FanoutClient
from fanout.errors import SchemaMismatch
from fanout.http.models import Health, Readiness
from fanout.http.problems import Refusal
from fanout.http.routes import AnyQueryRoute, problems
from fanout.http.service import TheClient
from fanout.metrics import CONTENT_TYPE, exposition
from fanout.store import OUTAGE

routes = APIRouter(route_class=AnyQueryRoute)
ANSWER_SECONDS = 3.0


@routes.head("/health", include_in_schema=False)
@routes.get("/health", response_model=Health)
async def show_health() -> Health:
    """Answers while the process does, whatever else is away."""
    return Health()


@routes.head("/ready", include_in_schema=False)
@routes.get("/ready", response_model=Readiness, responses=problems())
async def show_readiness(client: TheClient) -> Readiness:
    """Whether both servers answer and the schema is this version's; else what is not so, and which setting chose it.

    No address is told: whoever reaches the port may ask.
    """
    wrong = [found for found in await asyncio.gather(_check_database(client), _check_temporal(client)) if found]
    if wrong:
        detail = "; ".join(f"{what} (chosen by {setting})" for what, setting in wrong)
        raise Refusal(503, "not_ready", detail, setting=wrong[0][1])
    return Readiness()


@routes.get("/metrics", response_class=PlainTextResponse)
async def show_metrics(client: TheClient) -> PlainTextResponse:
    """Gauges from the rows and this process's duplicates, in Prometheus' text format; the rest is told by workers."""
    return PlainTextResponse(await exposition(client), media_type=CONTENT_TYPE)


Wrong = tuple[str, str] | None


async def _check_database(client: FanoutClient) -> Wrong:
    setting = "FANOUT_DATABASE_URL" if client.servers is None else client.servers.database_chosen_by
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await client.store.browsing.check_schema()
    except SchemaMismatch as error:
        return str(error), setting
    except OUTAGE as error:
        return f"PostgreSQL does not answer: {type(error).__name__}", setting
    return None


async def _check_temporal(client: FanoutClient) -> Wrong:
    setting = "TEMPORAL_ADDRESS" if client.servers is None else client.servers.temporal_chosen_by
    try:
        await client.temporal.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.temporal.namespace), timeout=timedelta(seconds=ANSWER_SECONDS)
        )
    except RPCError as error:
        return f"Temporal does not answer: {error.status.name}", setting
    return None
