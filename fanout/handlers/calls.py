"""Calls a handler for one payload and says how it ended: on the loop, in a thread and in a child process alike."""

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from fanout.encoding import UnstorableValue, encode
from fanout.errors import NotCompleted
from fanout.handlers.context import Context
from fanout.handlers.definition import Handler
from fanout.handlers.outcomes import Ending, Outcome, classify, describe
from fanout.logs import begin_item, end_item

RESULT_CODE = "unstorable_result"


class InvalidPayload(Exception):
    """The stored error of a payload that does not fit the handler's annotation; says where and why, not the value."""


class ResultTooLarge(UnstorableValue):
    """The stored error of a result over the limit."""


def read_payload(handler: Handler, payload: str) -> Any:
    """The handler's argument from JSON text; raises InvalidPayload."""
    if handler.payload is None:
        return json.loads(payload)
    try:
        return handler.payload.validate_json(payload)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, problem['loc'])) or 'payload'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise InvalidPayload("; ".join(problems)) from None


def arguments(handler: Handler, payload: Any, context: Context) -> tuple[Any, ...]:
    """What to call the handler's function with."""
    return (payload, context) if handler.takes_context else (payload,)


def encode_result(result: Any, limit: int) -> str:
    """A result as it is stored; raises UnstorableValue, also where it has more than `limit` bytes."""
    text = encode(result)
    size = len(text.encode())
    if size > limit:
        raise ResultTooLarge(f"the result has {size} bytes; the limit is {limit}")
    return text


def completed(result: Any, limit: int, context: Context) -> Outcome:
    """The outcome of an attempt that returned `result`."""
    if context.settled:
        return Outcome(Ending.SETTLED)
    if context.transacting:
        raise NotCompleted
    return Outcome(Ending.COMPLETED, result=encode_result(result, limit))


async def call_on_loop(handler: Handler, payload: str, context: Context, limit: int) -> Outcome:
    """Awaits a coroutine handler; CancelledError passes through, for the caller to say whose cancellation it was."""
    begin_item(context)
    try:
        result = await handler.function(*arguments(handler, read_payload(handler, payload), context))
        return completed(result, limit, context)
    except asyncio.CancelledError:
        if context.settled:
            return Outcome(Ending.SETTLED)
        raise
    except BaseException as error:
        return _raised(error, handler, context)


def call_blocking(
    handler: Handler, payload: str, context: Context, limit: int, run: Callable[[Any], Any] = asyncio.run
) -> Outcome:
    """Calls a handler in this thread; a coroutine is run by `run`. Never raises."""
    token = begin_item(context)
    try:
        result = handler.function(*arguments(handler, read_payload(handler, payload), context))
        if inspect.iscoroutine(result):
            result = run(result)
        return completed(result, limit, context)
    except BaseException as error:
        return _raised(error, handler, context)
    finally:
        end_item(token)


def _raised(error: BaseException, handler: Handler, context: Context) -> Outcome:
    if context.settled:
        context.logger.warning("the handler raised %s after its transaction settled the item", type(error).__name__)
        return Outcome(Ending.SETTLED)
    if isinstance(error, InvalidPayload):
        return Outcome(Ending.PERMANENT, error=describe(error, "invalid_payload", context.attempt))
    if isinstance(error, UnstorableValue):
        return Outcome(Ending.PERMANENT, error=describe(error, RESULT_CODE, context.attempt))
    return classify(error, handler, context.attempt)
