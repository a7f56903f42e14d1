"""The client that services embed."""

from fanout.client.client import FanoutClient
from fanout.client.handle import BatchHandle
from fanout.client.items import Item, Items
from fanout.client.schedule import Schedule
from fanout.client.schedule_files import read_schedules
from fanout.client.schedules import Change, Schedules
from fanout.client.starting import SEARCH_ATTRIBUTES, register_search_attributes
from fanout.client.submitting import SubmitOutcome
from fanout.client.why import Reason, Why
from fanout.status import Status
from fanout.store import Duplicate

__all__ = [
    "SEARCH_ATTRIBUTES",
    "BatchHandle",
    "Change",
    "Duplicate",
    "FanoutClient",
    "Item",
    "Items",
    "Reason",
    "Schedule",
    "Schedules",
    "Status",
    "SubmitOutcome",
    "Why",
    "read_schedules",
    "register_search_attributes",
]
