"""Fanout: batches of work on Temporal and PostgreSQL. Every item settles once, every batch closes."""

from fanout.client import BatchHandle, FanoutClient, Item, Status, SubmitOutcome
from fanout.errors import FanoutError, InvalidRequest, PermanentError, RetryLater, ServerUnreachable
from fanout.handlers import Breaker, Context, handler
from fanout.live import Message
from fanout.servers import Servers
from fanout.settings import Settings

__all__ = [
    "BatchHandle",
    "Breaker",
    "Context",
    "FanoutClient",
    "FanoutError",
    "InvalidRequest",
    "Item",
    "Message",
    "PermanentError",
    "RetryLater",
    "ServerUnreachable",
    "Servers",
    "Settings",
    "Status",
    "SubmitOutcome",
    "handler",
]
