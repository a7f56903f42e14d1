"""NOTIFY and LISTEN: hints that a batch has changed. What has changed stands in the tables."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import asyncpg

from fanout.store.pool import Connection, Pool
from fanout.store.statements import STATEMENTS

CHANNEL = "fanout_changes"
SEND_SECONDS = 2.0
LISTEN_SECONDS = 5.0


class Ticks:
    """Sends hints, each call in a transaction of its own that touches no row."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def send_ticks(self, batch_ids: Sequence[UUID]) -> None:
        """Tells all listeners of this database that these batches have changed."""
        await self._pool.fetch(STATEMENTS["send_ticks"], CHANNEL, batch_ids, timeout=SEND_SECONDS)

    async def send_probe(self, word: str) -> None:
        """Sends a word by which a listener recognises that it hears."""
        await self._pool.fetch(STATEMENTS["send_probe"], CHANNEL, json.dumps({"probe": word}), timeout=SEND_SECONDS)


class Ear:
    """One LISTEN connection; `deaf` is set once it is lost."""

    def __init__(self, heard: Callable[[UUID], None]) -> None:
        self.deaf = asyncio.Event()
        self._heard = heard
        self._word = ""
        self._answered = asyncio.Event()

    def expect(self, word: str) -> None:
        """The probe that comes next."""
        self._word = word
        self._answered.clear()

    async def answered(self, seconds: float) -> bool:
        """Whether the expected probe is heard within that time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), seconds)
        return self._answered.is_set()

    def on_notification(self, connection: object, pid: int, channel: str, text: object) -> None:
        """What asyncpg calls; whatever else may be sent on the channel is nobody's harm."""
        try:
            said = json.loads(str(text))
            if "batch" in said:
                self._heard(UUID(said["batch"]))
            elif said["probe"] == self._word:
                self._answered.set()
        except (ValueError, TypeError, LookupError, AttributeError):
            return

    def on_end(self, connection: object) -> None:
        """What asyncpg calls when the connection is gone."""
        self.deaf.set()


@asynccontextmanager
async def listening(url: str, heard: Callable[[UUID], None]) -> AsyncIterator[Ear]:
    """Listens on a connection of its own for the block; raises what the connecting raises."""
    ear = Ear(heard)
    connection = await _connect(url)
    try:
        connection.add_termination_listener(ear.on_end)
        await asyncio.wait_for(connection.add_listener(CHANNEL, ear.on_notification), LISTEN_SECONDS)
        yield ear
    finally:
        # Without a word: the server may be gone, and there is nothing to finish.
        with suppress(asyncpg.InterfaceError):
            connection.terminate()


async def _connect(url: str) -> Connection:
    # A pooler refuses settings that it does not know, and this one it does.
    named = {"application_name": "fanout listen"}
    return await asyncpg.connect(url, timeout=LISTEN_SECONDS, statement_cache_size=0, server_settings=named)
