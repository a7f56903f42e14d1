"""Items from a query: a row is an item, read as it is asked for, in constant memory."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fanout.client.items import Item
from fanout.encoding import UnstorableValue, decode
from fanout.errors import InvalidItem
from fanout.store import Column, Query

KEY = "key"


async def read_query(query: Query) -> AsyncGenerator[Item, None]:
    """An item a row: an object of its columns by their names; a column `key`, a text or a whole number, is the key.

    Whoever ends early closes it, and with it the connection. Raises InvalidItem with the row's position, and what
    `Query.rows` raises.
    """
    position = 0
    async with aclosing(query.rows()) as rows:
        async for row in rows:
            payload = {column.name: _value(column, value, position) for column, value in row}
            yield Item(payload, _key(payload.pop(KEY), position) if KEY in payload else None)
            position += 1


def _key(value: Any, position: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    kind = "null" if value is None else type(value).__name__
    raise InvalidItem(position, None, f"its column key must be a text or a whole number, not {kind}")


def _value(column: Column, value: Any, position: int) -> Any:
    if not column.is_json or value is None:
        return value
    if isinstance(value, list):
        return [_value(column, each, position) for each in value]
    try:
        return decode(value)
    except UnstorableValue as error:
        raise InvalidItem(position, None, f"its column {column.name}: {error}") from None
