"""Rows of a caller's own query, read only and a few at a time."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from fanout.errors import InvalidRequest, ServerUnreachable, shorten
from fanout.settings import hide_password
from fanout.store.faults import OUTAGE
from fanout.store.pool import CONNECT_SECONDS, UNREACHABLE, Connection

PREFETCH_ROWS = 100
# What JSON can hold as it is; asyncpg reads these rightly by itself, json and jsonb as their texts.
_PLAIN = {"bool", "int2", "int4", "int8", "float8", "text", "varchar", "bpchar", "name", "json", "jsonb"}
_ARRAY = "[]"
# asyncpg takes this name for that of another type, so no codec can be set for it.
_UNREADABLE = "char"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the query; `is_json` if its values are JSON texts, alone or in lists."""

    name: str
    is_json: bool


class Query:
    """A query of the caller's on some database: one statement, in a read-only transaction with a server-side cursor."""

    def __init__(self, url: str, text: str, chosen_by: str) -> None:
        self._url = url
        self._text = text
        self._chosen_by = chosen_by

    async def rows(self) -> AsyncGenerator[list[tuple[Column, Any]], None]:
        """Each row's columns with their values, in constant memory and one snapshot.

        Values are what JSON can hold, and for every other type the text that PostgreSQL shows, with times in UTC.
        Raises InvalidRequest for a query that cannot be run or that writes, ServerUnreachable without an answer.
        """
        connection = await self._connect()
        try:
            async with connection.transaction(readonly=True):
                columns = await self._prepare(connection)
                async for record in connection.cursor(self._text, prefetch=PREFETCH_ROWS, timeout=None):
                    yield list(zip(columns, record.values(), strict=True))
        except asyncpg.ReadOnlySQLTransactionError as error:
            raise InvalidRequest(f"the query writes, and may only read: {error}") from None
        except OUTAGE as error:
            raise self._unreachable(error) from error
        except asyncpg.PostgresError as error:
            raise InvalidRequest(f"the query cannot be run: {error}") from None
        finally:
            with suppress(*OUTAGE):
                await connection.close(timeout=CONNECT_SECONDS)

    async def _connect(self) -> Connection:
        try:
            return await asyncpg.connect(
                self._url,
                timeout=CONNECT_SECONDS,
                server_settings={
                    "application_name": "fanout query",
                    "timezone": "UTC",
                    "datestyle": "ISO",
                    "intervalstyle": "postgres",
                    "bytea_output": "hex",
                },
            )
        except UNREACHABLE as error:
            raise self._unreachable(error) from error

    async def _prepare(self, connection: Connection) -> list[Column]:
        """Has the connection read every type of the query's columns by the rule; names each column once."""
        prepared = await connection.prepare(self._text)
        attributes = prepared.get_attributes() or ()
        if prepared.get_parameters():
            raise InvalidRequest("the query has parameters, for which there are no values")
        if not attributes:
            raise InvalidRequest("the query gives no columns; it has to read rows, and may only read")
        names = [attribute.name for attribute in attributes]
        for name in names:
            if names.count(name) > 1:
                raise InvalidRequest(f"two columns of the query have the name {shorten(name)!r}; name one with AS")
        return [await self._column(connection, attribute) for attribute in attributes]

    async def _column(self, connection: Connection, attribute: asyncpg.Attribute) -> Column:
        kind = attribute.type
        name = kind.name.removesuffix(_ARRAY)
        known = kind.kind in ("scalar", "array") and (name in _PLAIN or kind.schema == "pg_catalog")
        if not known or name == _UNREADABLE:
            return _foreign(attribute)
        if name == "float4":
            # As a float of twice its size it would have digits that nobody wrote.
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=float)
        elif name not in _PLAIN:
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=str)
        return Column(attribute.name, name in ("json", "jsonb"))

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        cause = str(error) or type(error).__name__
        return ServerUnreachable("PostgreSQL", hide_password(self._url), self._chosen_by, cause)


def _foreign(attribute: asyncpg.Attribute) -> Column:
    """Enums are texts already; a row, a range or an extension's type the caller has to turn into one."""
    if attribute.type.kind == "enum":
        return Column(attribute.name, False)
    raise InvalidRequest(
        f"column {shorten(attribute.name)!r} has the type {attribute.type.name}; cast it to text or to json"
    )
