"""The runner with real child processes: they die, hang and are killed, and each item still ends once."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fanout.handlers import Ending, Handler, load_handlers
from tests.handlers_tests.harness import Harness, code, running
from tests.support import eventually

HANDLERS = load_handlers(["tests.handlers.children"])
ACT = HANDLERS["child.act"]


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """A runner with one child process, so that items wait for it."""
    async with running(HANDLERS, concurrency=1) as made:
        yield made


def starts(folder: Path, seq: int | None = None) -> list[int]:
    """The processes that noted a start, of one item or of all."""
    return [int(file.read_text() or 0) for file in folder.glob("*-*" if seq is None else f"{seq}-*")]


async def has_started(folder: Path, number: int = 1) -> None:
    async def noted() -> bool:
        return len([pid for pid in starts(folder) if pid]) >= number

    await eventually(noted)


async def gone(pid: int) -> None:
    async def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await eventually(ended)


def task(folder: Path, do: str, **more: Any) -> dict[str, Any]:
    return {"folder": str(folder), "do": do, **more}


async def test_children_that_die_are_lost_and_the_next_items_run(harness: Harness, tmp_path: Path) -> None:
    """Also one that ends with the exit code of success."""
    deaths = [
        task(tmp_path, "segfault"),
        task(tmp_path, "exit", code=137),
        task(tmp_path, "exit", code=0),
    ]
    works = harness.start(ACT, [*deaths, task(tmp_path, "pid")], parallel=1)
    for work in works:
        await harness.outcome(work)
    ended = await harness.finished()
    assert [code(ended[number]) for number in range(3)] == [(Ending.LOST, "lost", "ProcessDied")] * 3
    assert ended[3].ending is Ending.COMPLETED
    assert len(starts(tmp_path)) == 4


async def test_what_a_handler_raises_or_returns_in_a_child_is_judged_like_anywhere(
    harness: Harness, tmp_path: Path
) -> None:
    errors = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "PermanentError"]
    values = ["nan", "objects", "nul", "surrogate"]
    harness.start(ACT, [task(tmp_path, "raise", error=error) for error in errors], parallel=1)
    harness.start(ACT, [task(tmp_path, "weird", value=value) for value in values], parallel=1)
    ended = await harness.finished()
    assert [code(ended[number]) for number in range(3)] == [(Ending.TRANSIENT, "transient", e) for e in errors[:3]]
    assert code(ended[3]) == (Ending.PERMANENT, "permanent", "PermanentError")
    unstorable = (Ending.PERMANENT, "unstorable_result", "UnstorableValue")
    assert [code(ended[number]) for number in range(4, 8)] == [unstorable] * 4
    assert len({*starts(tmp_path)}) == 1, "no child died of it"


async def test_a_child_that_overruns_its_deadline_is_killed(harness: Harness, tmp_path: Path) -> None:
    hang = HANDLERS["child.hang"]
    # There is one child, which runs both.
    pid = int((await harness.run(ACT, task(tmp_path, "pid"))).result or 0)
    [work] = harness.start(hang, [{"folder": str(tmp_path)}])
    assert code(await harness.outcome(work)) == (Ending.TRANSIENT, "timeout", "TimeoutError")
    await gone(pid)
    await harness.finished()
    assert (await harness.run(ACT, task(tmp_path, "pid"))).ending is Ending.COMPLETED


async def test_a_handler_in_a_child_sees_that_it_should_stop(harness: Harness, tmp_path: Path) -> None:
    works = harness.start(ACT, [task(tmp_path, "wait")])
    await has_started(tmp_path)
    harness.runner.interrupt(works)
    assert (await harness.outcome(works[0])).ending is Ending.COMPLETED
    await harness.finished()


async def test_an_abandoned_child_is_killed(harness: Harness, tmp_path: Path) -> None:
    works = harness.start(ACT, [task(tmp_path, "hold")])
    await has_started(tmp_path)
    harness.runner.abandon(works)
    assert (await harness.outcome(works[0])).ending is Ending.INTERRUPTED
    await gone(starts(tmp_path)[0])
    await harness.finished()


@pytest.mark.parametrize("how", ["withdraw", "interrupt"])
async def test_items_that_wait_for_a_child_are_given_back_and_do_not_start_later(
    harness: Harness, tmp_path: Path, how: str
) -> None:
    """A worker may have more slots than children: once a batch is cancelled, none of the waiting ones may start."""
    held = harness.start(ACT, [task(tmp_path, "hold")])
    await has_started(tmp_path)
    waiting = harness.start(ACT, [task(tmp_path, "pid") for _ in range(5)])
    await harness.barrier()
    getattr(harness.runner, how)(waiting)
    assert {(await harness.outcome(work)).ending for work in waiting} == {Ending.INTERRUPTED}
    assert harness.outcomes[held[0].owner] == []
    (tmp_path / "go").touch()
    await harness.finished()
    assert len(starts(tmp_path)) == 1


async def test_a_child_that_is_killed_between_two_items_costs_none_of_them(harness: Harness, tmp_path: Path) -> None:
    """Out of memory, or an operator: the pool of children must not stay broken."""
    assert (await harness.run(ACT, task(tmp_path, "pid"))).ending is Ending.COMPLETED
    [pid] = starts(tmp_path)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)

    async def worked() -> bool:
        ending = (await harness.run(ACT, task(tmp_path, "pid"))).ending
        assert ending in (Ending.COMPLETED, Ending.LOST)
        return ending is Ending.COMPLETED

    await eventually(worked)


async def test_a_module_that_children_cannot_import_is_told_by_each_item() -> None:
    handlers = load_handlers(["tests.handlers.childless"])
    never: Handler = handlers["child.never"]
    async with running(handlers, concurrency=1) as harness:
        harness.start(never, range(3), parallel=1)
        ended = await harness.finished()
    assert [code(ended[number]) for number in range(3)] == [(Ending.TRANSIENT, "transient", "BrokenModule")] * 3
    assert "tests.handlers.childless" in ended[0].error["message"]
    assert "not in a child" in ended[0].error["message"]
