"""Where the items of a request come from: the request itself, or what a worker finds when it is asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from fanout.client.files import find_files
from fanout.client.items import Item, Items
from fanout.client.queries import read_query
from fanout.client.requests import Request
from fanout.store import Query


@dataclass(frozen=True, slots=True)
class Sources:
    """Looks items up with what this process can reach: its database, its files."""

    database_url: str
    chosen_by: str

    @asynccontextmanager
    async def items(self, request: Request) -> AsyncIterator[Items]:
        """The items for the block; nothing is looked up before they are asked for. None found is an empty batch."""
        if request.sql is not None:
            async with aclosing(read_query(Query(self.database_url, request.sql, self.chosen_by))) as rows:
                yield rows
        elif request.glob is not None:
            yield _files(request.glob)
        else:
            yield request.each()


async def _files(pattern: str) -> AsyncIterator[Item]:
    for item in await asyncio.to_thread(find_files, pattern):
        yield item
