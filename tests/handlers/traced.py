"""Handlers that answer with the span that is current in them."""

from typing import Any

from opentelemetry import trace

from fanout import Context, handler


def current() -> list[str]:
    found = trace.get_current_span().get_span_context()
    return [f"{found.trace_id:032x}", f"{found.span_id:016x}"]


@handler("test.traced", max_attempts=3)
async def traced(payload: Any, ctx: Context) -> list[str]:
    if ctx.attempt <= payload["failures"]:
        raise ConnectionError(payload["secret"])
    return current()


@handler("test.traced-thread")
def traced_in_a_thread(payload: Any) -> list[str]:
    return current()


@handler("test.traced-process", run_in="process")
def traced_in_a_child(payload: Any) -> list[str]:
    return current()
