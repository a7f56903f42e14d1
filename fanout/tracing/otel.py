"""Spans by OpenTelemetry: the only module that imports it."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any
from uuid import UUID

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from temporalio.contrib.opentelemetry import TracingInterceptor

from fanout.tracing import Described, SubmitSpan, Tracing

FLUSH_SECONDS = 5.0
EXPORTERS = "opentelemetry_traces_exporter"
"""The group of entry points in which packages offer exporters."""
ERRORS = frozenset({"permanent", "transient", "lost"})
W3C = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class _Attempt:
    span: Span
    context: Context
    began_ns: int


class _Submit(SubmitSpan):
    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = _traceparent(trace.set_span_in_context(span))

    def came_to(self, batch_id: UUID, outcome: str, total: int | None = None) -> None:
        self._span.set_attributes({"fanout.batch_id": str(batch_id), "fanout.outcome": outcome})
        if total is not None:
            self._span.set_attribute("fanout.total", total)


class OtelTracing(Tracing):
    """Spans for submits and attempts, and Temporal's own interceptor for all between them."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("fanout")
        self._interceptor = TracingInterceptor(self._tracer)

    @classmethod
    def of_process(cls) -> "OtelTracing":
        """By the provider that the process has, or will have."""
        return cls(trace.get_tracer_provider())

    @classmethod
    def exporting(cls, exporter: str) -> "OtelTracing":
        """By a provider of our own, made this process's; raises ImportError where no package has that exporter."""
        found = next(iter(entry_points(group=EXPORTERS, name=exporter)), None)
        if found is None:
            raise ImportError(f"no package offers the exporter {exporter!r}")
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(found.load()()))
        trace.set_tracer_provider(provider)
        return cls(provider)

    @property
    def interceptors(self) -> Sequence[Any]:
        """Temporal's tracing interceptor."""
        return (self._interceptor,)

    @contextmanager
    def submitting(self, handler: str) -> Iterator[SubmitSpan]:
        """A span around a submit; an error that leaves the block is noted by its class."""
        attributes = {"fanout.handler": handler}
        with self._tracer.start_as_current_span(
            "fanout.submit", kind=SpanKind.PRODUCER, attributes=attributes, record_exception=False
        ) as span:
            yield _Submit(span)

    @contextmanager
    def continuing(self, traceparent: str | None) -> Iterator[None]:
        """What happens in the block belongs to that trace, unless it belongs to one already."""
        if traceparent is None or trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = otel_context.attach(W3C.extract({"traceparent": traceparent}))
        try:
            yield
        finally:
            otel_context.detach(token)

    def here(self) -> Context:
        """The caller's context."""
        return otel_context.get_current()

    def begin(self, item: Described, parent: Any, previous: str | None) -> _Attempt:
        """The span of an attempt, linked to that of the attempt before, wherever it ran."""
        before = trace.get_current_span(W3C.extract({"traceparent": previous or ""}, Context())).get_span_context()
        facts = item.trace_facts
        began = time.time_ns()
        span = self._tracer.start_span(
            f"fanout.attempt {facts['handler']}",
            parent,
            SpanKind.CONSUMER,
            {f"fanout.{name}": value for name, value in facts.items()},
            [Link(before, {"fanout.link": "previous attempt"})] if before.is_valid else None,
            began,
        )
        return _Attempt(span, trace.set_span_in_context(span, parent), began)

    def inside(self, span: _Attempt) -> contextvars.Context:
        """A context in which the attempt's span is the current one."""
        inside = contextvars.copy_context()
        inside.run(otel_context.attach, span.context)
        return inside

    def traceparent(self, span: _Attempt) -> str | None:
        """The span in W3C's form."""
        return _traceparent(span.context)

    def end(self, span: _Attempt, outcome: str, error_type: str | None, seconds: float) -> None:
        """Ends the span when the handler ended, which is a moment ago."""
        span.span.set_attribute("fanout.outcome", outcome)
        if error_type is not None:
            span.span.set_attribute("error.type", error_type)
        if outcome in ERRORS:
            span.span.set_status(Status(StatusCode.ERROR, error_type))
        span.span.end(span.began_ns + int(seconds * 1e9) if seconds else None)

    async def flush(self) -> None:
        """Ends the provider, in a thread that nobody waits for longer: its collector may be away."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, FLUSH_SECONDS)


def _traceparent(context: Context) -> str | None:
    carrier: dict[str, str] = {}
    W3C.inject(carrier, context)
    return carrier.get("traceparent")
