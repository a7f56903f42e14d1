"""The runner, on the handlers' loop and in threads: one outcome an item, each slot freed once, whatever handlers do."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from fanout import Context, PermanentError
from fanout.handlers import Ending
from fanout.handlers.runner import OBEY_SECONDS
from tests.handlers_tests.harness import Harness, code, running
from tests.handlers_tests.making import make_handler
from tests.support import eventually

SHORT = timedelta(seconds=0.3)


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with running() as made:
        yield made


class Gate:
    """Holds handlers of any mode until it is opened."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.calls: list[int] = []
        self._open = threading.Event()

    async def on_loop(self, payload: Any, ctx: Context) -> Any:
        self._enter(ctx)
        try:
            while not self._open.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        finally:
            self.inside -= 1
        return payload

    def in_thread(self, payload: Any, ctx: Context) -> Any:
        self._enter(ctx)
        self._open.wait(60)
        self.inside -= 1
        return payload

    async def deaf(self, payload: Any, ctx: Context) -> Any:
        self._enter(ctx)
        while not self._open.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        self.inside -= 1
        return "at last"

    def open(self) -> None:
        self._open.set()

    async def holds(self, number: int) -> None:
        async def full() -> bool:
            return self.inside == number

        await eventually(full)

    def _enter(self, ctx: Context) -> None:
        self.calls.append(ctx.seq)
        self.inside += 1
        self.most = max(self.most, self.inside)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.mark.parametrize("mode", ["on_loop", "in_thread"])
async def test_items_run_in_order_and_no_more_than_allowed_at_once(harness: Harness, gate: Gate, mode: str) -> None:
    harness.start(make_handler(getattr(gate, mode)), range(50), parallel=3)
    await gate.holds(3)
    assert harness.outcomes == {}
    gate.open()
    ended = await harness.finished()
    assert [ended[number].result for number in range(50)] == [str(number) for number in range(50)]
    assert gate.most == 3
    assert gate.calls[:3] == [0, 1, 2]
    assert sorted(gate.calls) == list(range(50))


async def test_more_slots_than_items_all_come_back(harness: Harness) -> None:
    harness.start(make_handler(), range(2), parallel=5)
    harness.start(make_handler(), [], parallel=3)
    await harness.finished()


@pytest.mark.parametrize("mode", ["on_loop", "in_thread", "deaf"])
async def test_an_item_that_overruns_its_deadline_is_reported_as_timed_out(
    harness: Harness, gate: Gate, mode: str
) -> None:
    """Whether or not it obeys; its slot is taken until it has really ended, and what it says then is not heard."""
    began = time.monotonic()
    [late] = harness.start(make_handler(getattr(gate, mode), timeout=SHORT), [None])
    outcome = await harness.outcome(late)
    assert time.monotonic() - began >= SHORT.total_seconds()
    assert code(outcome) == (Ending.TRANSIENT, "timeout", "TimeoutError")
    assert "0.3 s" in outcome.error["message"]
    assert late.context.cancelled
    if mode == "on_loop":
        await harness.finished()
        return
    await harness.barrier()
    assert (harness.taken - harness.freed, gate.inside) == (1, 1)
    gate.open()
    await harness.finished()
    assert gate.inside == 0


async def test_a_handler_that_cleans_up_after_its_deadline_has_time_to(harness: Harness) -> None:
    cleaned: list[bool] = []

    async def tidy(payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(OBEY_SECONDS / 4)
            cleaned.append(True)

    outcome = await harness.run(make_handler(tidy, timeout=SHORT))
    assert code(outcome) == (Ending.TRANSIENT, "timeout", "TimeoutError")
    assert cleaned == [True]


async def test_the_next_item_waits_for_the_slot_of_one_that_does_not_end(harness: Harness, gate: Gate) -> None:
    late, following = harness.start(make_handler(gate.deaf, timeout=SHORT), range(2), parallel=1)
    await harness.outcome(late)
    await harness.barrier()
    assert (following.started, gate.calls) == (None, [0])
    gate.open()
    ended = await harness.finished()
    assert ended[following.owner].result == '"at last"'


async def test_a_handler_that_blocks_the_loop_does_not_time_out_its_neighbours(harness: Harness) -> None:
    """The deadlines' clock stands still while nobody could run."""

    async def short(payload: Any) -> str:
        await asyncio.sleep(0.4)
        await asyncio.sleep(0.4)
        return "in time"

    async def block(payload: Any) -> None:
        time.sleep(7)  # noqa: ASYNC251

    harness.start(make_handler(short, timeout=timedelta(seconds=6)), range(3))
    harness.start(make_handler(block), [None])
    ended = await harness.finished()
    assert [ended[number].result for number in range(3)] == ['"in time"'] * 3


def raising(error: type[BaseException]) -> dict[str, Callable[..., Any]]:
    async def coroutine(payload: Any) -> None:
        await asyncio.sleep(0)
        raise error("mine")

    def plain(payload: Any) -> None:
        raise error("mine")

    return {"loop": coroutine, "thread": plain}


@pytest.mark.parametrize("mode", ["loop", "thread"])
@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, MemoryError, RecursionError]
)
async def test_whatever_a_handler_raises_is_transient_and_ends_nothing(
    harness: Harness, error: type[BaseException], mode: str
) -> None:
    harness.start(make_handler(raising(error)[mode]), range(5), parallel=2)
    ended = await harness.finished()
    assert {code(ended[number]) for number in range(5)} == {(Ending.TRANSIENT, "transient", error.__name__)}


async def test_an_error_whose_text_ends_the_process_does_not(harness: Harness) -> None:
    class Evil(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

    for function in raising(Evil).values():
        assert code(await harness.run(make_handler(function))) == (Ending.TRANSIENT, "transient", "Evil")


async def test_a_task_of_a_handler_s_own_cannot_end_the_handlers_loop(harness: Harness, gate: Gate) -> None:
    """SystemExit and KeyboardInterrupt leave a task through its loop."""

    async def leave() -> None:
        raise SystemExit(3)

    async def gathers(payload: Any) -> None:
        await asyncio.gather(asyncio.create_task(leave()))

    async def stops(payload: Any) -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "on"

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def calls(payload: Any) -> str:
        asyncio.get_running_loop().call_soon(interrupt)
        await asyncio.sleep(0.01)
        return "on"

    harness.start(make_handler(gate.on_loop), ["neighbour"])
    assert code(await harness.outcome(harness.start(make_handler(gathers), [None])[0]))[2] == "SystemExit"
    for function in (stops, calls):
        assert (await harness.outcome(harness.start(make_handler(function), [None])[0])).result == '"on"'
    gate.open()
    assert (await harness.finished())[0].result == '"neighbour"'


@pytest.mark.parametrize("mode", ["on_loop", "in_thread"])
async def test_withdrawn_items_never_start_and_running_ones_go_on(harness: Harness, gate: Gate, mode: str) -> None:
    works = harness.start(make_handler(getattr(gate, mode)), range(10), parallel=2)
    await gate.holds(2)
    harness.runner.withdraw(works)
    harness.runner.withdraw(works)
    late = harness.start(make_handler(getattr(gate, mode)), ["late"], parallel=1)
    await gate.holds(3)
    gate.open()
    ended = await harness.finished()
    assert [ended[work.owner].ending for work in works] == [Ending.COMPLETED] * 2 + [Ending.INTERRUPTED] * 8
    assert ended[late[0].owner].result == '"late"'
    assert sorted(gate.calls) == [0, 1, 10]


async def test_works_that_are_withdrawn_before_they_are_started_do_not_run(harness: Harness, gate: Gate) -> None:
    held = harness.start(make_handler(gate.on_loop), range(2), parallel=1)
    harness.runner.withdraw(held)
    harness.runner.interrupt(held)
    harness.runner.abandon(held)
    await harness.finished()


async def test_an_interrupted_coroutine_is_given_back_whatever_it_makes_of_it(harness: Harness) -> None:
    inside: list[str] = []

    async def wait(payload: str) -> str:
        inside.append(payload)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if payload == "raises":
                raise ConnectionError("the line is down") from None
            if payload == "returns":
                return "done all the same"
            if payload == "gives up":
                raise PermanentError("too late") from None
            raise
        return "never"

    works = harness.start(make_handler(wait), ["obeys", "raises", "returns", "gives up"])

    async def all_inside() -> bool:
        return len(inside) == 4

    await eventually(all_inside)
    harness.runner.interrupt(works)
    ended = await harness.finished()
    endings = [ended[work.owner].ending for work in works]
    assert endings == [Ending.INTERRUPTED, Ending.INTERRUPTED, Ending.COMPLETED, Ending.PERMANENT]
    assert all(work.context.cancelled for work in works)


async def test_handlers_see_in_their_context_that_they_should_stop(harness: Harness) -> None:
    inside: list[str] = []

    async def waits(payload: Any, ctx: Context) -> str:
        inside.append("loop")
        try:
            await ctx.wait_cancelled()
        except asyncio.CancelledError:
            await ctx.wait_cancelled()
        return f"told {ctx.cancelled}"

    def polls(payload: Any, ctx: Context) -> str:
        inside.append("thread")
        while not ctx.cancelled:
            time.sleep(0.005)
        return f"told {ctx.cancelled}"

    works = [*harness.start(make_handler(waits), [None]), *harness.start(make_handler(polls), [None])]

    async def both_inside() -> bool:
        return len(inside) == 2

    await eventually(both_inside)
    assert not any(work.context.cancelled for work in works)
    harness.runner.interrupt(works)
    ended = await harness.finished()
    assert [ended[number].result for number in range(2)] == ['"told True"'] * 2


@pytest.mark.parametrize("mode", ["deaf", "in_thread"])
async def test_an_abandoned_item_is_given_back_at_once_and_its_slot_when_it_ends(
    harness: Harness, gate: Gate, mode: str
) -> None:
    works = harness.start(make_handler(getattr(gate, mode)), range(2), parallel=1)
    await gate.holds(1)
    harness.runner.abandon(works)
    assert [(await harness.outcome(work)).ending for work in works] == [Ending.INTERRUPTED] * 2
    await harness.barrier()
    assert harness.taken - harness.freed == 1
    gate.open()
    await harness.finished()
    assert gate.calls == [0]


async def test_thousands_of_items_that_cannot_start_end_one_by_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fanout.handlers.children.pebble", None)
    harness.start(make_handler(run_in="process"), range(3_000), parallel=4)
    ended = await harness.finished()
    assert {code(ended[number]) for number in range(3_000)} == {(Ending.TRANSIENT, "transient", "MissingExtra")}


async def test_many_short_items_of_both_modes_lose_no_slot(harness: Harness) -> None:
    def plain(payload: int) -> int:
        if payload % 7 == 0:
            raise ValueError(payload)
        return payload

    async def coroutine(payload: int) -> int:
        return plain(payload)

    for parallel in (1, 3, 8):
        harness.start(make_handler(plain), range(300), parallel)
        harness.start(make_handler(coroutine), range(300), parallel)
    ended = await harness.finished()
    assert sum(outcome.ending is Ending.TRANSIENT for outcome in ended.values()) == 6 * 43
