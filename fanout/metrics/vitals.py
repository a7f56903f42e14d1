"""Whether a worker is well: what its probes are told."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus

from temporalio.client import Client
from temporalio.service import RPCError

from fanout.metrics.endpoint import Answer

TEMPORAL_SECONDS = timedelta(seconds=2)


class Vitals:
    """What a worker knows of itself. Until it is told more it is alive and starts."""

    def __init__(self) -> None:
        self.draining = False
        self._lease_is_fresh: Callable[[], bool] = bool
        self._polls: Callable[[], bool] = bool
        self._temporal: Client | None = None

    def works(self, temporal: Client, lease_is_fresh: Callable[[], bool], polls: Callable[[], bool]) -> None:
        """It has started: from here on these say how it is."""
        self._temporal, self._lease_is_fresh, self._polls = temporal, lease_is_fresh, polls

    async def health(self) -> Answer:
        """Liveness: that this is answered shows that the engine's loop goes round."""
        return Answer("alive\n")

    async def ready(self) -> Answer:
        """Readiness: 503 with the reasons while it would not work on an item."""
        reasons = await self._reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        body = json.dumps({"ready": not reasons, "reasons": reasons}) + "\n"
        return Answer(body, status, "application/json")

    async def _reasons(self) -> list[str]:
        if self.draining:
            return ["draining"]
        if self._temporal is None:
            return ["starting"]
        reasons = [] if self._lease_is_fresh() else ["database"]
        if not await _answers(self._temporal):
            reasons.append("temporal")
        return reasons if self._polls() else [*reasons, "polling"]


async def _answers(temporal: Client) -> bool:
    try:
        async with asyncio.timeout(2 * TEMPORAL_SECONDS.total_seconds()):
            return await temporal.service_client.check_health(timeout=TEMPORAL_SECONDS)
    except (RPCError, RuntimeError, TimeoutError):
        return False
