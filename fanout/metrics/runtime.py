"""The Temporal SDK's runtime of a process: there is one, and it keeps the counters of the SDK and ours."""

import asyncio
import logging
import socket
from contextlib import suppress

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from fanout.metrics.catalogue import METRICS

LOOPBACK = "127.0.0.1"
PORT_TRIES = 10
ANSWER_SECONDS = 3.0

# The SDK's core writes to stderr by itself otherwise, in lines of its own form.
LOGS = LoggingConfig(
    filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
    forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
)


class ProcessRuntime:
    """The runtime, and with `metered` a loopback port at which the SDK tells its metrics in Prometheus' text format.

    The SDK has no other way to be asked for them; whoever serves this process's metrics reads them there.
    """

    def __init__(self, metered: bool) -> None:
        self._port = 0
        self.runtime = self._metered() if metered else Runtime(telemetry=TelemetryConfig(logging=LOGS))

    def _metered(self) -> Runtime:
        for _ in range(PORT_TRIES):
            self._port = _free_port()
            # Between the look and the use somebody else may have taken it.
            with suppress(ValueError):
                return Runtime(telemetry=_telemetry(f"{LOOPBACK}:{self._port}"))
        raise RuntimeError(f"no free port of {LOOPBACK} in {PORT_TRIES} tries")

    async def text(self) -> str:
        """The SDK's metrics and our counters; nothing where they do not come in time."""
        if not self._port:
            return ""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._read()
        except (OSError, TimeoutError, ValueError):
            return ""

    async def _read(self) -> str:
        reader, writer = await asyncio.open_connection(LOOPBACK, self._port)
        try:
            writer.write(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = await reader.read(-1)
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise ValueError("the SDK did not tell its metrics")
        return body.decode()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def _telemetry(address: str) -> TelemetryConfig:
    return TelemetryConfig(
        logging=LOGS,
        metrics=PrometheusConfig(
            bind_address=address,
            counters_total_suffix=True,
            durations_as_seconds=True,
            histogram_bucket_overrides={metric.name: metric.buckets for metric in METRICS if metric.buckets},
        ),
        attach_service_name=False,
    )
