"""A service of its own: it defines a handler, submits a batch and reads what came of it."""

import asyncio
from collections.abc import Iterator

from pydantic import BaseModel

from fanout import Context, FanoutClient, Item, PermanentError, handler
from fanout.exits import leave


class Invoice(BaseModel):
    number: str
    cents: int


@handler("billing.tax", max_attempts=3)
async def add_tax(invoice: Invoice, ctx: Context) -> dict[str, int]:
    """Workers run it: `python worker.py --handlers examples.embedding`."""
    if invoice.cents < 0:
        raise PermanentError(f"{invoice.number} is a credit note", code="credit_note")
    ctx.logger.info("taxing %s under %s", invoice.number, ctx.idempotency_key)
    return {"cents": invoice.cents * 119 // 100}


def november() -> Iterator[Item]:
    for number in range(1, 101):
        cents = -500 if number == 100 else 1_000 * number
        yield Item(Invoice(number=f"R-{number}", cents=cents), key=f"R-{number}")


async def main() -> None:
    async with FanoutClient.connect() as fanout:
        batch = await fanout.submit("billing.tax", november(), key="2026-11")
        status = await batch.wait()
        print(batch.outcome, status.status, status.completed, status.failed)
        async for row in batch.results(status="failed"):
            print(row.item_key, row.error and row.error["code"])


if __name__ == "__main__":
    asyncio.run(main())
    leave(0)  # not by the interpreter's own way out, which Temporal's client can crash
