"""Traces for OpenTelemetry: from a submit to the handler. What is not asked for is not imported, and costs nothing.

A worker traces when OpenTelemetry's own variables name an exporter; a client when its process uses OpenTelemetry.
"""

import importlib
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Protocol
from uuid import UUID

from fanout.settings import traces_exporter

log = logging.getLogger("fanout.tracing")


class Described(Protocol):
    """One attempt at one item, as far as its span tells of it."""

    @property
    def trace_facts(self) -> dict[str, str | int]:
        """Ids and counts; never a payload."""


class SubmitSpan:
    """The span of a submit: nobody's."""

    traceparent: str | None = None

    def came_to(self, batch_id: UUID, outcome: str, total: int | None = None) -> None:
        """What the submit came to."""


class Tracing:
    """Traces nothing: what a process does that nobody asked to trace."""

    @property
    def interceptors(self) -> Sequence[Any]:
        """What a Temporal client is to be made with, so that calls, workflows and activities have spans."""
        return ()

    @contextmanager
    def submitting(self, handler: str) -> Iterator[SubmitSpan]:
        """A span around a submit."""
        yield SubmitSpan()

    @contextmanager
    def continuing(self, traceparent: str | None) -> Iterator[None]:
        """What happens in the block belongs to that trace, unless it belongs to one already."""
        yield

    def here(self) -> Any:
        """Where the caller is, to begin spans from later and elsewhere."""
        return None

    def begin(self, item: Described, parent: Any, previous: str | None) -> Any:
        """The span of an attempt that starts now; `previous` is that of an earlier one at the same item."""
        return None

    def inside(self, span: Any) -> Context | None:
        """A context in which the attempt's handler is to run; None to run it in the caller's."""
        return None

    def traceparent(self, span: Any) -> str | None:
        """The span in W3C's form, for other processes."""
        return None

    def end(self, span: Any, outcome: str, error_type: str | None, seconds: float) -> None:
        """The attempt ended after so many seconds; of an error only its class is told."""

    async def flush(self) -> None:
        """Hands over what was traced, within a few seconds."""


NO_TRACING = Tracing()


def tracing_of_process() -> Tracing:
    """Spans beside those of a process that uses OpenTelemetry; in any other process none."""
    if "opentelemetry.trace" not in sys.modules:
        return NO_TRACING
    try:
        found: Tracing = _load().of_process()
        return found
    except ImportError:
        return NO_TRACING


def set_up_tracing() -> Tracing:
    """For a process that is ours: sends spans where OpenTelemetry's own variables say; without them there are none."""
    exporter = traces_exporter()
    if exporter is None:
        return NO_TRACING
    try:
        found: Tracing = _load().exporting(exporter)
        return found
    except ImportError as error:
        log.warning("OpenTelemetry's variables ask for traces, but the extra otel is not installed whole: %s", error)
    except Exception:
        log.exception("the exporter %r of traces cannot be used: nothing is traced", exporter)
    return NO_TRACING


def _load() -> Any:
    # By name, so that a process without traces does not import OpenTelemetry, and need not have it.
    return importlib.import_module("fanout.tracing.otel").OtelTracing


__all__ = ["NO_TRACING", "SubmitSpan", "Tracing", "set_up_tracing", "tracing_of_process"]
