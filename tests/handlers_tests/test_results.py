"""What goes into a handler and what comes out of it, through a real runner: payloads that do not fit, odd results."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from fanout.handlers import Ending
from tests.handlers_tests.harness import Harness, code, running
from tests.handlers_tests.making import make_handler


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with running() as made:
        yield made


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise KeyboardInterrupt


def failing() -> Iterator[int]:
    yield 1
    raise PermissionError("half-way")


@pytest.mark.parametrize("mode", ["loop", "thread"])
@pytest.mark.parametrize(
    ("make", "error_type"),
    [
        (lambda: float("nan"), "UnstorableValue"),
        (lambda: {object(), object()}, "UnstorableValue"),
        (lambda: ["a\0b"], "UnstorableValue"),
        (lambda: "\ud800", "UnstorableValue"),
        (lambda: deep(500), "UnstorableValue"),
        (lambda: deep(100_000), "UnstorableValue"),
        (lambda: {1: 1, "1": 2}, "UnstorableValue"),
        (failing, "UnstorableValue"),
        (lambda: "é" * 50, "ResultTooLarge"),
    ],
    ids=["nan", "objects", "nul", "surrogate", "deep", "very deep", "same names", "failing generator", "too large"],
)
async def test_a_result_that_cannot_be_stored_fails_the_item_at_once(
    make: Callable[[], Any], error_type: str, mode: str
) -> None:
    async def coroutine(payload: Any) -> Any:
        return make()

    def plain(payload: Any) -> Any:
        return make()

    async with running(limit=101) as harness:
        outcome = await harness.run(make_handler(coroutine if mode == "loop" else plain))
    assert code(outcome) == (Ending.PERMANENT, "unstorable_result", error_type)


async def test_a_result_of_exactly_the_limit_passes() -> None:
    async def returns(payload: Any) -> str:
        return "é" * 50

    async with running(limit=102) as harness:
        assert (await harness.run(make_handler(returns))).ending is Ending.COMPLETED


async def test_a_result_whose_own_code_raises_anything_ends_nothing(harness: Harness) -> None:
    async def coroutine(payload: Any) -> Any:
        return Unreadable(a=1)

    def plain(payload: Any) -> Any:
        return Unreadable(a=1)

    for function in (coroutine, plain):
        assert code(await harness.run(make_handler(function)))[2] == "KeyboardInterrupt"


class Paper(BaseModel):
    pages: int


async def test_a_payload_that_does_not_fit_fails_at_once_and_is_not_quoted(harness: Harness) -> None:
    async def read(paper: Paper) -> int:
        return paper.pages

    outcome = await harness.run(make_handler(read), {"pages": "secret"})
    assert code(outcome) == (Ending.PERMANENT, "invalid_payload", "InvalidPayload")
    assert "pages" in outcome.error["message"]
    assert "secret" not in outcome.error["message"] + str(outcome.error["traceback"])
    assert (await harness.run(make_handler(read), {"pages": 3})).result == "3"
