"""All that is measured and told of one worker process: made first, before it connects to anything."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from temporalio.runtime import Runtime

from fanout.metrics.endpoint import Answer, Endpoint
from fanout.metrics.exposition import CONTENT_TYPE, DatabaseGauges
from fanout.metrics.meters import NO_METERS, Meters, SdkMeters
from fanout.metrics.runtime import ProcessRuntime
from fanout.metrics.vitals import Vitals
from fanout.settings import Settings
from fanout.tracing import set_up_tracing

SETTING = "FANOUT_METRICS_ADDRESS"


class Observation:
    """The SDK's runtime, our counters, traces, the worker's vitals, and the address at which all of it is told."""

    def __init__(self, settings: Settings) -> None:
        self._place = settings.metrics_place
        self._process = ProcessRuntime(metered=self._place is not None)
        self.meters: Meters = NO_METERS if self._place is None else SdkMeters(self._process.runtime.metric_meter)
        self.tracing = set_up_tracing()
        self.vitals = Vitals()
        self.gauges: DatabaseGauges | None = None
        """Told beside the counters once there is a database to read them from."""

    @property
    def runtime(self) -> Runtime:
        """What this process's Temporal client is to be made with."""
        return self._process.runtime

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serves `/metrics`, `/health` and `/ready` for the block; raises InvalidSetting where the address is taken.

        What was traced is handed over at its end.
        """
        pages = {"/metrics": self._metrics, "/health": self.vitals.health, "/ready": self.vitals.ready}
        async with AsyncExitStack() as held:
            held.push_async_callback(self.tracing.flush)
            if self._place is not None:
                await held.enter_async_context(Endpoint(pages).listening(*self._place, SETTING))
            yield

    async def _metrics(self) -> Answer:
        gauges = "" if self.gauges is None else await self.gauges.text()
        return Answer(await self._process.text() + gauges, content_type=CONTENT_TYPE)
