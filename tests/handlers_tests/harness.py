"""A tiny engine for the runner: it starts items, and counts outcomes and freed slots."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fanout.encoding import encode
from fanout.handlers import Ending, Handler, Handlers, Outcome
from fanout.handlers.runner import Report, Runner, Work
from tests.handlers_tests.making import make_context, make_handler
from tests.support import eventually

Item = Work[int]


class Harness:
    """Owns a runner; `finished` proves that each item had one outcome and each slot came back once."""

    def __init__(self, handlers: Handlers, concurrency: int, limit: int) -> None:
        self.outcomes: dict[int, list[Outcome]] = defaultdict(list)
        self.order: list[int] = []
        self.freed = 0
        self.taken = 0
        self.started = 0
        self.runner: Runner[int] = Runner(handlers, concurrency, limit, self._on_reports)

    def _on_reports(self, reports: list[Report[int]]) -> None:
        for report in reports:
            self.freed += report.freed
            if report.outcome is not None:
                self.outcomes[report.work.owner].append(report.outcome)
                self.order.append(report.work.owner)

    def start(self, handler: Handler, payloads: Iterable[Any], parallel: int | None = None) -> list[Item]:
        """Hands items over in one group; by default all may run at once."""
        works = []
        for payload in payloads:
            works.append(Work(self.started, handler, encode(payload), make_context(self.started, name=handler.name)))
            self.started += 1
        parallel = len(works) if parallel is None else parallel
        self.taken += parallel
        self.runner.start(works, parallel)
        return works

    async def outcome(self, work: Item, timeout: float = 60) -> Outcome:
        """The item's only outcome, once it is there."""

        async def reported() -> list[Outcome]:
            return self.outcomes[work.owner]

        await eventually(reported, timeout)
        [found] = self.outcomes[work.owner]
        return found

    async def run(self, handler: Handler, payload: Any = None) -> Outcome:
        """One item to its outcome and its slot's return."""
        [work] = self.start(handler, [payload])
        outcome = await self.outcome(work)
        await self.finished()
        return outcome

    async def finished(self, timeout: float = 60) -> dict[int, Outcome]:
        """Every outcome by item, once all slots are back: none missing, none twice, none too many."""

        async def back() -> bool:
            return self.freed >= self.taken and len(self.outcomes) >= self.started

        await eventually(back, timeout)
        await self.barrier()
        assert self.freed == self.taken
        assert {number: len(found) for number, found in self.outcomes.items()} == dict.fromkeys(range(self.started), 1)
        return {number: found[0] for number, found in sorted(self.outcomes.items())}

    async def barrier(self) -> None:
        """Returns when everything that was reported before is delivered: a later item overtakes nothing."""

        async def nothing(payload: Any) -> None: ...

        [work] = self.start(make_handler(nothing, "test.barrier"), [None])
        await self.outcome(work)


@asynccontextmanager
async def running(
    handlers: Handlers | None = None, concurrency: int = 8, limit: int = 1_048_576
) -> AsyncIterator[Harness]:
    """A runner for a test, stopped at its end."""
    harness = Harness(handlers or Handlers(()), concurrency, limit)
    try:
        yield harness
    finally:
        await harness.runner.stop()


def code(outcome: Outcome) -> tuple[Ending, str | None, str | None]:
    """What an outcome is, in short: its class, its error's code and type."""
    return outcome.ending, outcome.error.get("code"), outcome.error.get("type")
