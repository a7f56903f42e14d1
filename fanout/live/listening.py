"""Keeps one LISTEN connection for the process, and finds out whether it hears anything."""

import asyncio
import logging
import random
from collections.abc import Callable
from uuid import UUID, uuid4

from fanout.store import Ear, Ticks, listening

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0
PROBE_SECONDS = 5.0
HEAR_SECONDS = 2.0
SEND_SECONDS = 3.0

log = logging.getLogger("fanout.live")


class Silence(ConnectionError):
    """A probe was sent, and not heard: the line is dead, or a transaction pooler stands in between."""


class Listening:
    """Listens again after every loss. A probe that comes back, every few seconds, is the only proof that it hears.

    `degraded` while it does not: then hints are missed, and readers depend on looking by themselves.
    """

    def __init__(self, url: str, ticks: Ticks, heard: Callable[[UUID], None], restored: Callable[[], None]) -> None:
        self.degraded = False
        self._url = url
        self._ticks = ticks
        self._heard = heard
        self._restored = restored

    async def run(self) -> None:
        """Listens until it is cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            if await self._listen():
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    async def _listen(self) -> bool:
        """Listens until the connection is lost; says whether it heard anything before."""
        hears = False
        try:
            async with listening(self._url, self._heard) as ear:
                await self._probe(ear)
                hears = True
                self._on_hearing()
                await self._stay(ear)
        except Exception as error:
            # Also a wrong address or password: readers look by themselves for as long as it lasts.
            self._on_loss(str(error) or type(error).__name__, hears)
        return hears

    async def _stay(self, ear: Ear) -> None:
        while True:
            try:
                await asyncio.wait_for(ear.deaf.wait(), PROBE_SECONDS)
            except TimeoutError:
                await self._probe(ear)
            else:
                raise ConnectionError("the connection was closed")

    async def _probe(self, ear: Ear) -> None:
        """By another connection: a pooler would hand us our own word back on the one that said it."""
        word = uuid4().hex
        ear.expect(word)
        await asyncio.wait_for(self._ticks.send_probe(word), SEND_SECONDS)
        if not await ear.answered(HEAR_SECONDS):
            raise Silence("nothing was heard")

    def _on_hearing(self) -> None:
        if self.degraded:
            log.info("live progress is told again")
        self.degraded = False
        # What was said meanwhile was not heard.
        self._restored()

    def _on_loss(self, cause: str, heard: bool) -> None:
        if heard:
            log.info("the LISTEN connection was lost (%s); listening again", cause)
            return
        if not self.degraded:
            log.warning(
                "LISTEN does not work (%s): live progress comes every few seconds. Behind a transaction pooler set "
                "FANOUT_LISTEN_URL to the database's own address",
                cause,
            )
        self.degraded = True
