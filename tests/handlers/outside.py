"""A module of a service's own: it imports what it likes and reads its surroundings when it is imported."""

import os
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import httpx
from pydantic import BaseModel

from fanout import handler

REGION = os.environ["FANOUT_TEST_REGION"]
COUNTER = Path(os.environ["FANOUT_TEST_COUNTER"])
with COUNTER.open("a") as imports:
    imports.write(f"{os.getpid()}\n")
CLIENT = httpx.Limits(max_connections=3)


class Invoice(BaseModel):
    """A payload whose fields are more than JSON."""

    at: datetime
    id: UUID
    amount: Decimal
    tags: set[str]


class Booked(BaseModel):
    """The result."""

    types: list[str]
    same: Invoice
    region: str


@handler("outside.book")
async def book(invoice: Invoice) -> Booked:
    """Tells the types that it got."""
    types = [type(value).__name__ for value in (invoice, invoice.at, invoice.id, invoice.amount, invoice.tags)]
    return Booked(types=types, same=invoice, region=REGION)
