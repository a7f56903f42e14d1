"""`@handler`: turns a function into a handler without changing the function."""

import asyncio
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter
from temporalio.common import RetryPolicy

from fanout.errors import InvalidRequest
from fanout.names import HANDLER_NAME

Mode = Literal["loop", "thread", "process"]
Function = TypeVar("Function", bound=Callable[..., Any])

MARK = "__fanout_handler__"
LEAST_MEMORY = 32 * 1_048_576
DEFAULT_RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=60),
    maximum_attempts=5,
)


class InvalidHandler(InvalidRequest):
    """A handler's definition cannot work; raised when its module is imported."""

    code = "invalid_handler"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"handler {name!r}: {reason}")


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops a batch's claims once `failures` items in a row of one worker ended with one type of error out of `on`.

    After `delay` one item is tried. If it ends with that type again the next is tried after another `delay`;
    if it does not, the batch goes on. Subclasses of the types in `on` count.
    """

    failures: int = 20
    delay: timedelta = timedelta(seconds=30)
    on: tuple[type[BaseException], ...] = (Exception,)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that processes one item, with everything that its definition fixes."""

    name: str
    function: Callable[..., Any]
    mode: Mode
    timeout: timedelta
    retry_policy: RetryPolicy
    permanent: tuple[type[BaseException], ...]
    transient: tuple[type[BaseException], ...]
    payload: TypeAdapter[Any] | None
    takes_context: bool
    breaker: Breaker | None = None
    memory_limit: int | None = None

    @property
    def transacts(self) -> bool:
        """Whether its function may settle its item by a transaction of its own."""
        return self.takes_context and self.mode == "loop"

    def breaks_on(self, error: BaseException) -> bool:
        """Whether this handler's breaker counts `error`."""
        return self.breaker is not None and isinstance(error, self.breaker.on)

    @property
    def facts(self) -> dict[str, Any]:
        """What `fanout.workers` tells of this handler."""
        policy = self.retry_policy
        assert policy.maximum_interval is not None
        return {
            "mode": self.mode,
            "timeout_seconds": self.timeout.total_seconds(),
            "maximum_attempts": policy.maximum_attempts,
            "initial_interval_seconds": policy.initial_interval.total_seconds(),
            "backoff_coefficient": policy.backoff_coefficient,
            "maximum_interval_seconds": policy.maximum_interval.total_seconds(),
            "lane": None,
        }


def handler(
    name: str,
    *,
    timeout: timedelta = timedelta(minutes=10),
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    max_attempts: int | None = None,
    run_in: Mode = "loop",
    permanent: tuple[type[BaseException], ...] = (),
    transient: tuple[type[BaseException], ...] = (),
    breaker: Breaker | None = None,
    memory_limit: int | None = None,
) -> Callable[[Function], Function]:
    """Makes `function(payload)` or `function(payload, ctx)` the handler `name`; the function stays as it is.

    The payload's annotation is validated by pydantic; without one the handler sees plain JSON values. Coroutine
    functions run on the handlers' loop, plain functions in a thread, and `run_in="process"` runs either in a child
    process that can be killed. `permanent` and `transient` add exception types to either side. `max_attempts` is short
    for the policy's last field. `breaker` stops a batch while everything fails for one reason. `memory_limit`, in
    bytes of data and with `run_in="process"` only, makes an item that needs more a lost execution. Raises
    InvalidHandler for a definition that cannot work.
    """

    def mark(function: Function) -> Function:
        defined = _define(name, function, timeout, policy, run_in, permanent, transient)
        setattr(function, MARK, replace(defined, breaker=breaker, memory_limit=memory_limit))
        return function

    policy = _checked(name, retry_policy, max_attempts)
    if not HANDLER_NAME.fullmatch(name):
        raise InvalidHandler(name, f"a name matches {HANDLER_NAME.pattern}")
    if timeout <= timedelta(0):
        raise InvalidHandler(name, "timeout must be above 0")
    if run_in not in typing.get_args(Mode):
        raise InvalidHandler(name, f"run_in must be one of {', '.join(typing.get_args(Mode))}")
    if breaker is not None and (breaker.failures < 1 or breaker.delay <= timedelta(0)):
        raise InvalidHandler(name, "breaker: failures must be at least 1 and delay above 0")
    if memory_limit is not None and (run_in != "process" or memory_limit < LEAST_MEMORY):
        raise InvalidHandler(name, f'memory_limit needs run_in="process" and at least {LEAST_MEMORY:,} bytes')
    return mark


def _define(
    name: str,
    function: Callable[..., Any],
    timeout: timedelta,
    policy: RetryPolicy,
    run_in: Mode,
    permanent: tuple[type[BaseException], ...],
    transient: tuple[type[BaseException], ...],
) -> Handler:
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if len(parameters) not in (1, 2) or needed:
        raise InvalidHandler(name, "it takes (payload) or (payload, ctx)")
    mode: Mode = "thread" if run_in == "loop" and not asyncio.iscoroutinefunction(function) else run_in
    annotation = typing.get_type_hints(function).get(parameters[0].name, Any)
    return Handler(
        name=name,
        function=function,
        mode=mode,
        timeout=timeout,
        retry_policy=policy,
        permanent=permanent,
        transient=transient,
        payload=None if annotation is Any else TypeAdapter(annotation),
        takes_context=len(parameters) == 2,
    )


def _checked(name: str, policy: RetryPolicy, max_attempts: int | None) -> RetryPolicy:
    attempts = policy.maximum_attempts if max_attempts is None else max_attempts
    longest = timedelta(seconds=60) if policy.maximum_interval is None else policy.maximum_interval
    rules = {
        "maximum_attempts must be at least 1": attempts >= 1,
        "initial_interval must be above 0": policy.initial_interval > timedelta(0),
        "backoff_coefficient must be at least 1": policy.backoff_coefficient >= 1,
        "maximum_interval must be at least initial_interval": longest >= policy.initial_interval,
        "non_retryable_error_types match names; use permanent=(types)": not policy.non_retryable_error_types,
    }
    for rule, kept in rules.items():
        if not kept:
            raise InvalidHandler(name, f"retry policy: {rule}")
    return RetryPolicy(
        initial_interval=policy.initial_interval,
        backoff_coefficient=policy.backoff_coefficient,
        maximum_interval=longest,
        maximum_attempts=attempts,
    )
