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
# The server's answer to this query, however often it is asked.
_STOPPED = (asyncpg.QueryCanceledError, asyncpg.ConfigurationLimitExceededError)
# What asyncpg raises for a query that it cannot read, and for a connection that was lost.
_ASYNCPGS = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_FORM = "postgresql://user:password@host:port/database"


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
        Raises InvalidRequest for a query that cannot be run, that writes or that a time limit stopped, and for a URL
        that is none; ServerUnreachable where the connection is refused or lost.
        """
        connection = await self._connect()
        try:
            async with connection.transaction(readonly=True):
                columns = await self._prepare(connection)
                async for record in connection.cursor(self._text, prefetch=PREFETCH_ROWS, timeout=None):
                    yield list(zip(columns, record.values(), strict=True))
        except asyncpg.ReadOnlySQLTransactionError as error:
            raise InvalidRequest(f"the query writes, and may only read: {error}") from None
        except _STOPPED as error:
            raise InvalidRequest(f"the query was stopped by PostgreSQL: {error}") from None
        except OUTAGE as error:
            if isinstance(error, _ASYNCPGS) and not connection.is_closed():
                raise InvalidRequest(_unread(error)) from None
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
        except OSError as error:
            # Before the next, as a certificate that is refused is an error of values too.
            raise self._unreachable(error) from error
        except (ValueError, OverflowError) as error:
            # Only asyncpg's own words hold nothing of a password.
            cause = str(error) if isinstance(error, asyncpg.InterfaceError) else "its host or port cannot be read"
            raise InvalidRequest(f"the URL chosen by {self._chosen_by} is not {_FORM}: {cause}") from None
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
        if name not in _PLAIN:
            try:
                # As a float of twice its size a float4 would have digits that nobody wrote.
                decoder = float if name == "float4" else str
                await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=decoder)
            except asyncpg.InterfaceError:
                if connection.is_closed():
                    raise
                # An array of ranges, or a vector, whose elements have no form of text for asyncpg.
                return _foreign(attribute)
        return Column(attribute.name, name in ("json", "jsonb"))

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        cause = str(error) or type(error).__name__
        return ServerUnreachable("PostgreSQL", hide_password(self._url), self._chosen_by, cause)


def _unread(error: BaseException) -> str:
    """asyncpg has asked what the types are, in vain, before any column is known."""
    return f"the query has a column of a type that cannot be read, as anyarray: cast it to text or to json ({error})"


def _foreign(attribute: asyncpg.Attribute) -> Column:
    """Enums are texts already; a row, a range or an extension's type the caller has to turn into one."""
    if attribute.type.kind == "enum":
        return Column(attribute.name, False)
    raise InvalidRequest(
        f"column {shorten(attribute.name)!r} has the type {attribute.type.name}; cast it to text or to json"
    )
