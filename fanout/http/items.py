"""A batch's items: pages of rows, and one row with everything that is known of it."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from fanout.client import BatchHandle, FanoutClient
from fanout.client.items import check_words, key_fault
from fanout.errors import InvalidRequest
from fanout.http import cursors
from fanout.http.batches import Cursor
from fanout.http.models import Row, RowPage, WholeRow
from fanout.http.problems import Refusal
from fanout.http.routes import ApiRoute, problems
from fanout.http.service import TheBatch, TheClient
from fanout.names import ITEM_KEY_BYTES
from fanout.states import ItemStatus
from fanout.store import PageRow, Wanted

routes = APIRouter(route_class=ApiRoute)
PAGE_ITEMS = 100
MOST_ITEMS = 1_000
TEXT_CHARACTERS = 400
SEARCH_SECONDS = 0.5
"""After this a page is answered as far as it is: whoever waits for it sees how far the search has come."""
WINDOW_ROWS = 20_000
WINDOW_KEYS = 2_000
"""How many rows, or keys, one statement of a search looks at."""

Key = Annotated[str | None, Query(description="The one item with this key, whole.")]
Prefix = Annotated[str | None, Query(description="Only items whose keys begin so; in the order of their keys.")]
ErrorType = Annotated[str | None, Query(description="Only items whose error has this type.")]
ErrorCode = Annotated[str | None, Query(description="Only items whose error has this code.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]


@routes.get("/batches/{batch}/items", response_model=RowPage | WholeRow, responses=problems(404))
async def list_items(
    batch: TheBatch,
    client: TheClient,
    key: Key = None,
    status: ItemStatus | None = None,
    prefix: Prefix = None,
    error_type: ErrorType = None,
    error_code: ErrorCode = None,
    cursor: Cursor = None,
    limit: Limit = PAGE_ITEMS,
) -> RowPage | WholeRow:
    """A page of items, or with `key` one of them. A row that settles meanwhile moves to no other page.

    A search for a few among many may answer pages that are short or empty: go on while `next` is there.
    """
    wanted = Wanted(status, _words("error_type", error_type), _words("error_code", error_code))
    if key is not None:
        if not wanted.anything or prefix is not None or cursor is not None:
            raise Refusal(422, InvalidRequest.code, "key names one item: nothing else goes with it", path="?key")
        return await _whole(batch, key)
    if prefix is None:
        return await _page_by_seq(client, batch, cursors.read_seq(cursor), wanted, limit)
    return await _page_by_key(client, batch, _prefix(prefix), cursors.read_key(cursor), wanted, limit)


def _words(name: str, words: str | None) -> str | None:
    return None if words is None else check_words(name, words, TEXT_CHARACTERS)


def _prefix(prefix: str) -> str:
    fault = key_fault(prefix, ITEM_KEY_BYTES)
    if fault is not None:
        raise Refusal(422, InvalidRequest.code, f"the prefix {fault}", path="?prefix", limit=ITEM_KEY_BYTES)
    return prefix


async def _whole(batch: BatchHandle, key: str) -> WholeRow:
    facts = asdict(await batch.item(key))
    return WholeRow(**facts.pop("row"), **facts)


def _row(found: PageRow) -> Row:
    row = found.row
    return Row(
        seq=row.seq,
        item_key=row.item_key,
        status=row.status,
        attempts=row.attempts,
        crashes=row.crashes,
        result=row.result,
        error=row.error,
        result_left_out=found.result_left_out,
    )


def _page(found: Sequence[PageRow], following: str | None) -> RowPage:
    return RowPage(items=[_row(each) for each in found], next=following)


async def _page_by_seq(client: FanoutClient, batch: BatchHandle, lo: int, wanted: Wanted, limit: int) -> RowPage:
    total = (await batch.check_rows()).total
    give_up = time.monotonic() + SEARCH_SECONDS
    found: list[PageRow] = []
    while lo < total and len(found) <= limit:
        hi = min(total, lo + WINDOW_ROWS)
        found += await client.store.browsing.page_rows(batch.batch_id, lo, hi, wanted, limit + 1 - len(found))
        lo = hi
        if time.monotonic() > give_up:
            break
    if len(found) > limit:
        return _page(found[:limit], cursors.write(found[limit].row.seq))
    return _page(found, cursors.write(lo) if lo < total else None)


async def _page_by_key(
    client: FanoutClient, batch: BatchHandle, prefix: str, after: str, wanted: Wanted, limit: int
) -> RowPage:
    await batch.check_rows()
    browsing = client.store.browsing
    give_up = time.monotonic() + SEARCH_SECONDS
    found: list[PageRow] = []
    while True:
        most = limit + 1 - len(found) if wanted.anything else WINDOW_KEYS
        keys = await browsing.find_item_keys(batch.batch_id, prefix, after, most)
        found += await browsing.read_rows_at(batch.batch_id, [seq for _, seq in keys], wanted)
        if len(found) > limit:
            return _page(found[:limit], cursors.write(found[limit - 1].row.item_key))
        if len(keys) < most:
            return _page(found, None)
        after = keys[-1][0]
        if time.monotonic() > give_up:
            return _page(found, cursors.write(after))
