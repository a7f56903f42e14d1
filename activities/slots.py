"""The item slots of one worker: what `concurrency` counts."""

import asyncio
from collections import deque


class Slots:
    """Hands out slots in the order of asking, so that no range starves another."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()

    async def take(self, most: int) -> int:
        """Waits for its turn and takes between 1 and `most` slots."""
        if self._free and not self._waiting:
            return self._grant(most)
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((most, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(turn.result())
            raise

    def give_back(self, count: int) -> None:
        """Frees slots for the next in line."""
        self._free += count
        while self._free and self._waiting:
            most, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(self._grant(most))

    def _grant(self, most: int) -> int:
        granted = min(self._free, max(1, most))
        self._free -= granted
        return granted
