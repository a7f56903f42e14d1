"""How handlers are defined and found: what cannot work is refused when its module is imported."""

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.common import RetryPolicy

from fanout import Context, InvalidRequest, handler
from fanout.handlers import DEFAULT_RETRY_POLICY, BrokenModule, Handler, Handlers, InvalidHandler, load_handlers
from fanout.handlers.calls import read_payload
from fanout.handlers.definition import MARK


def definition(function: Callable[..., Any], name: str = "test.it", **options: Any) -> Handler:
    found: Handler = getattr(handler(name, **options)(function), MARK)
    return found


async def one(payload: Any) -> None: ...


def policy(**changes: Any) -> RetryPolicy:
    given: dict[str, Any] = {
        "initial_interval": timedelta(seconds=1),
        "maximum_interval": timedelta(seconds=60),
        "maximum_attempts": 5,
    }
    return RetryPolicy(**given | changes)


@pytest.mark.parametrize("name", ["a", "0", "a.b-c_d", "x" * 48])
def test_names_as_long_as_48_characters_pass(name: str) -> None:
    assert definition(one, name).name == name


@pytest.mark.parametrize("name", ["", "A", ".a", "a/b", "a b", "x" * 49, "a\n", "é", "-a"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidHandler, match="a name matches"):
        handler(name)


def test_the_defaults_are_the_documented_ones() -> None:
    made = definition(one)
    assert (made.mode, made.timeout) == ("loop", timedelta(minutes=10))
    assert (made.permanent, made.transient, made.payload, made.takes_context) == ((), (), None, False)
    assert made.retry_policy == DEFAULT_RETRY_POLICY
    assert made.facts == {
        "mode": "loop",
        "timeout_seconds": 600.0,
        "maximum_attempts": 5,
        "initial_interval_seconds": 1.0,
        "backoff_coefficient": 2.0,
        "maximum_interval_seconds": 60.0,
        "lane": None,
    }


def test_the_function_stays_as_it_is() -> None:
    assert handler("test.it")(one) is one


def test_a_plain_function_runs_in_a_thread_and_a_coroutine_function_where_it_is_told() -> None:
    def plain(payload: Any) -> None: ...

    assert definition(plain).mode == "thread"
    assert definition(plain, run_in="process").mode == "process"
    assert definition(one, run_in="thread").mode == "thread"


def test_a_context_is_passed_to_a_second_parameter() -> None:
    async def both(payload: Any, ctx: Context) -> None: ...
    async def extra(payload: Any, *, option: int = 1) -> None: ...

    assert definition(both).takes_context
    assert not definition(extra).takes_context


def test_functions_that_could_not_be_called_are_refused() -> None:
    async def none() -> None: ...
    async def three(payload: Any, ctx: Context, more: Any) -> None: ...
    async def named(payload: Any, *, needed: int) -> None: ...
    async def starred(*payload: Any) -> None: ...

    for function in (none, three, named, starred):
        with pytest.raises(InvalidHandler, match=r"\(payload\) or \(payload, ctx\)"):
            definition(function)


def test_a_wrapped_function_keeps_its_signature_and_its_payload() -> None:
    class Paper(BaseModel):
        pages: int

    async def inner(paper: Paper) -> None: ...

    @functools.wraps(inner)
    async def outer(*arguments: Any) -> None: ...

    outer.__annotations__ = {"paper": Paper}
    made = definition(outer)
    assert read_payload(made, '{"pages":3}') == Paper(pages=3)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"backoff_coefficient": 0.5}, "backoff_coefficient"),
        ({"backoff_coefficient": float("nan")}, "backoff_coefficient"),
        ({"initial_interval": timedelta(seconds=2), "maximum_interval": timedelta(seconds=1)}, "maximum_interval"),
        ({"maximum_interval": timedelta(0)}, "maximum_interval"),
        ({"initial_interval": timedelta(seconds=-1)}, "initial_interval"),
        ({"initial_interval": timedelta(0)}, "initial_interval"),
        ({"maximum_attempts": 0}, "maximum_attempts"),
        ({"maximum_attempts": -1}, "maximum_attempts"),
        ({"non_retryable_error_types": ["ValueError"]}, "non_retryable_error_types"),
    ],
)
def test_a_bad_policy_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidHandler, match=field) as refused:
        handler("test.it", retry_policy=policy(**changes))
    assert "test.it" in str(refused.value)


@pytest.mark.parametrize("attempts", [0, -1])
def test_max_attempts_below_one_are_refused(attempts: int) -> None:
    with pytest.raises(InvalidHandler, match="maximum_attempts"):
        handler("test.it", max_attempts=attempts)


def test_max_attempts_is_short_for_the_policy_s_last_field() -> None:
    assert definition(one, max_attempts=7).retry_policy.maximum_attempts == 7
    unlimited = RetryPolicy(initial_interval=timedelta(seconds=2))
    made = definition(one, retry_policy=unlimited, max_attempts=1).retry_policy
    assert (made.maximum_attempts, made.maximum_interval) == (1, timedelta(seconds=60))
    assert DEFAULT_RETRY_POLICY.maximum_attempts == 5


def test_a_timeout_of_zero_and_an_unknown_mode_are_refused() -> None:
    for timeout in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(InvalidHandler, match="timeout"):
            handler("test.it", timeout=timeout)
    with pytest.raises(InvalidHandler, match="run_in"):
        handler("test.it", run_in="somewhere")  # type: ignore[arg-type]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Writes a module that can be imported during this test; answers its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        name = f"loaded_{tmp_path.name.strip('_-')}_{name}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setitem(sys.modules, name, sys)
        monkeypatch.delitem(sys.modules, name)
        return name

    return write


GOOD = "from fanout import handler\n@handler('{name}')\nasync def work(payload): ...\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no config')", "ValueError: no config"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "no handler"),
        ("from fanout import handler\nhandler('Bad Name')", "InvalidHandler"),
    ],
)
def test_a_broken_module_is_named_with_its_error(package: Callable[[str, str], str], text: str, reason: str) -> None:
    name = package("broken", text)
    with pytest.raises(BrokenModule, match=reason) as refused:
        load_handlers([name])
    assert name in str(refused.value)


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "", ".relative"])
def test_a_module_that_cannot_be_found_is_named(name: str) -> None:
    with pytest.raises(BrokenModule, match=repr(name)):
        load_handlers([name])


def test_a_handler_that_two_modules_share_is_one(package: Callable[[str, str], str]) -> None:
    first = package("first", GOOD.format(name="shared.one"))
    second = package("second", f"from {first} import work\nalias = work\n")
    found = load_handlers([first, second, first])
    assert (list(found), found.modules) == (["shared.one"], (first, second, first))


def test_two_handlers_of_one_name_are_refused(package: Callable[[str, str], str]) -> None:
    modules = [package(part, GOOD.format(name="twice")) for part in ("left", "right")]
    with pytest.raises(InvalidRequest, match="'twice'"):
        load_handlers(modules)
    known = load_handlers(modules[:1])
    with pytest.raises(InvalidRequest, match="'twice'"):
        known.plus(load_handlers(modules[1:]).values())
    assert known.plus(known.values()).keys() == {"twice"}


def test_a_module_with_lazy_objects_is_searched_all_the_same(package: Callable[[str, str], str]) -> None:
    """Proxies of web frameworks and settings objects raise at any attribute."""
    lazy = "class Lazy:\n    def __getattr__(self, name):\n        raise RuntimeError('outside of a request')\n"
    found = load_handlers([package("lazy", lazy + "current = Lazy()\n" + GOOD.format(name="lazy.one"))])
    assert list(found) == ["lazy.one"]


def test_handlers_know_only_what_they_were_given() -> None:
    assert list(Handlers(())) == []
    assert "test.it" not in Handlers(())
