"""Traces from a submit to the handler: real workers that send spans to a collector of the test."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fanout import BatchHandle, FanoutClient
from fanout.settings import traces_exporter
from fanout.tracing import NO_TRACING, set_up_tracing
from fanout.tracing.otel import OtelTracing
from tests.support import ROOT, Deployment

SECRET = "what-the-payload-says"


class Span:
    """A span as the collector gets it."""

    def __init__(self, span: Any) -> None:
        self.name: str = span.name
        self.trace_id: str = span.trace_id.hex()
        self.span_id: str = span.span_id.hex()
        self.parent_id: str = span.parent_span_id.hex()
        self.status: int = span.status.code
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.links: list[str] = [link.span_id.hex() for link in span.links]
        self.facts = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Takes OTLP over HTTP, as collectors do; what it got, and its address."""
    got: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans(got: list[bytes]) -> list[Span]:
    return [
        Span(span)
        for body in got
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


async def test_one_trace_leads_from_the_submit_to_every_attempt(fanout: Deployment) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    with collector() as (url, got):
        fanout.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        worker = await fanout.start_worker(handlers="tests.handlers.traced")
        tracing = OtelTracing(provider)
        async with FanoutClient.connect(fanout.settings, servers=fanout.servers, tracing=tracing) as client:
            items = [{"failures": failures, "secret": SECRET} for failures in (0, 2, 9)]
            batch = await client.submit("test.traced", items, key="k")
            others = [await submit_by_program(fanout), await client.submit("test.traced-process", [1])]
            for each in (batch, *others):
                await asyncio.wait_for(each.wait(), 60)
            seen = {each.batch_id: [row.result async for row in each.results()] for each in (batch, *others)}
            [failed] = [row.error async for row in batch.results("failed")]
        assert worker.stop() == 0
        found = spans(got)
    client_spans = memory.get_finished_spans()
    check_the_way_down(client_spans, found, str(batch.batch_id))
    attempts = [span for span in found if span.facts.get("fanout.batch_id") == str(batch.batch_id)]
    check_the_attempts(attempts)
    of_program = [span for span in found if span.facts.get("fanout.batch_id") == str(others[0].batch_id)]
    assert {span.name for span in of_program} == {"fanout.submit", "fanout.attempt test.traced-thread"}
    assert len({span.trace_id for span in of_program}) == 1
    check_that_handlers_stood_inside([span for span in found if "fanout.attempt" in span.name], seen)
    last = [span for span in attempts if span.facts["fanout.seq"] == 2][-1]
    assert failed is not None
    assert failed["traceparent"].startswith(f"00-{last.trace_id}-{last.span_id}-")
    assert not [body for body in got if SECRET.encode() in body]


async def submit_by_program(fanout: Deployment) -> BatchHandle:
    done = await asyncio.to_thread(fanout.run, "submit", "test.traced-thread", "--items", "-", "--json", text="1\n")
    return await fanout.client.get(UUID(json.loads(done.stdout)["batch_id"]))


def check_the_way_down(client_spans: tuple[ReadableSpan, ...], found: list[Span], batch_id: str) -> None:
    [submit] = [
        span
        for span in client_spans
        if span.name == "fanout.submit" and (span.attributes or {})["fanout.batch_id"] == batch_id
    ]
    assert submit.context is not None
    assert (submit.attributes or {})["fanout.outcome"] == "started"
    trace_id, span_id = f"{submit.context.trace_id:032x}", f"{submit.context.span_id:016x}"
    own = {span.span_id: span for span in found if span.trace_id == trace_id}
    started = [span for span in client_spans if span.parent and f"{span.parent.span_id:016x}" == span_id]
    assert [span.name for span in started] == ["SignalWithStartWorkflow:Batch"]
    attempt = next(span for span in own.values() if span.name == "fanout.attempt test.traced")
    way = []
    while attempt.parent_id in own:
        attempt = own[attempt.parent_id]
        way.append(attempt.name)
    assert way == ["RunActivity:process_range", "StartActivity:process_range"]
    assert started[0].context is not None
    start = f"{started[0].context.span_id:016x}"
    assert attempt.parent_id == start
    assert [span.parent_id for span in own.values() if span.name == "RunWorkflow:Batch"] == [start]


def check_the_attempts(attempts: list[Span]) -> None:
    ends = {0: ["completed"], 1: ["transient", "transient", "completed"], 2: ["transient"] * 3}
    for seq, outcomes in ends.items():
        own = [span for span in attempts if span.facts.get("fanout.seq") == seq and "fanout.attempt" in span.name]
        assert [span.facts["fanout.outcome"] for span in own] == outcomes
        assert [span.facts["fanout.attempt"] for span in own] == [*range(1, len(outcomes) + 1)]
        assert [span.links for span in own] == [[], *([span.span_id] for span in own[:-1])]
        assert [span.status == 2 for span in own] == [outcome == "transient" for outcome in outcomes]
        assert {span.facts["fanout.item_key"] for span in own} == {str(seq)}
        assert all(0 <= span.seconds < 30 for span in own)
    assert {span.facts.get("error.type") for span in attempts if span.status == 2} == {"ConnectionError"}


def check_that_handlers_stood_inside(attempts: list[Span], seen: dict[Any, list[Any]]) -> None:
    for batch_id, results in seen.items():
        ended = [
            [span.trace_id, span.span_id]
            for span in attempts
            if span.facts["fanout.batch_id"] == str(batch_id) and span.facts["fanout.outcome"] == "completed"
        ]
        told = [result for result in results if result is not None]
        assert sorted(told) == sorted(ended)
        assert told


async def test_a_batch_that_somebody_else_starts_continues_the_trace_of_its_submit(fanout: Deployment) -> None:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracing = OtelTracing(provider)
    async with FanoutClient.connect(fanout.settings, servers=fanout.servers, tracing=tracing) as client:
        batch = await client.submit("test.noop", [1], allow_unknown=True)
        await batch.start()
    found = memory.get_finished_spans()
    assert {span.name for span in found} >= {"fanout.submit", "SignalWithStartWorkflow:Batch"}
    assert len([span for span in found if span.name == "SignalWithStartWorkflow:Batch"]) == 2
    assert len({span.context.trace_id for span in found if span.context is not None}) == 1


async def test_a_collector_that_is_away_holds_nobody_up(fanout: Deployment) -> None:
    worker = await fanout.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    batch = await fanout.client.submit("test.echo", [1, 2, 3])
    assert (await asyncio.wait_for(batch.wait(), 60)).completed == 3
    assert worker.stop() == 0


def test_nothing_is_imported_where_nobody_asks_for_traces() -> None:
    script = (
        "import sys, worker, starter, fanout.cli.app\nprint([n for n in sys.modules if n.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("variables", "exporter"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp_proto_http"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp_proto_grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp_proto_http"),
    ],
)
def test_the_standard_variables_choose_the_exporter(
    variables: dict[str, str], exporter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert traces_exporter() == exporter


def test_an_exporter_that_is_not_there_costs_the_traces_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "no-such-exporter")
    assert set_up_tracing() is NO_TRACING
    assert "no-such-exporter" in caplog.text
