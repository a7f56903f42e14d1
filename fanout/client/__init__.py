"""The client that services embed."""

from fanout.client.client import FanoutClient
from fanout.client.handle import BatchHandle
from fanout.client.items import Item, Items
from fanout.client.starting import SEARCH_ATTRIBUTES, register_search_attributes
from fanout.client.submitting import SubmitOutcome
from fanout.status import Status
from fanout.store import Duplicate

__all__ = [
    "SEARCH_ATTRIBUTES",
    "BatchHandle",
    "Duplicate",
    "FanoutClient",
    "Item",
    "Items",
    "Status",
    "SubmitOutcome",
    "register_search_attributes",
]
