"""Handlers: how they are defined, found, run, and what their ends mean."""

from fanout.handlers.context import Cancellation, Context
from fanout.handlers.definition import DEFAULT_RETRY_POLICY, Breaker, Handler, InvalidHandler, handler
from fanout.handlers.outcomes import Ending, Outcome, backoff_seconds, judge, lost_too_often
from fanout.handlers.registry import BrokenModule, Handlers, load_handlers

__all__ = [
    "DEFAULT_RETRY_POLICY",
    "Breaker",
    "BrokenModule",
    "Cancellation",
    "Context",
    "Ending",
    "Handler",
    "Handlers",
    "InvalidHandler",
    "Outcome",
    "backoff_seconds",
    "handler",
    "judge",
    "load_handlers",
    "lost_too_often",
]
