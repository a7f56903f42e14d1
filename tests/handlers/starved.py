"""Workflows that get no processor for longer than the SDK's own limit, each once."""

import time
from typing import Any

from temporalio.worker import _workflow

from fanout import handler

STARVED_SECONDS = 3.0

activate = _workflow._RunningWorkflow.activate
starved: set[str] = set()


def activate_late(running: Any, activation: Any) -> Any:
    """As the SDK does, but the first time late."""
    if activation.run_id not in starved:
        starved.add(activation.run_id)
        time.sleep(STARVED_SECONDS)
    return activate(running, activation)


_workflow._RunningWorkflow.activate = activate_late  # type: ignore[assignment, method-assign]


@handler("starved.echo")
async def echo(payload: int) -> int:
    """Returns what it was given."""
    return payload
