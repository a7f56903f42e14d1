"""Which batches were changed, told to whoever wants to know: a hint and no more, after the change."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

OnChange = Callable[[UUID], None]
"""Told the id of a batch that has changed; called from the event loop, and must return at once."""


def nobody(batch_id: UUID) -> None:
    """Where nobody wants to know."""


class _HasNews(Protocol):
    _on_change: OnChange


Answer = TypeVar("Answer")
Owner = TypeVar("Owner", bound=_HasNews)
Given = ParamSpec("Given")
Method = Callable[Concatenate[Owner, UUID, Given], Coroutine[Any, Any, Answer]]


def noted(method: Method[Owner, Given, Answer]) -> Method[Owner, Given, Answer]:
    """The method changes the batch of its first argument, which is told once it ends.

    Also when it fails: a COMMIT whose answer was lost may have taken place.
    """

    @wraps(method)
    async def wrapped(owner: Owner, batch_id: UUID, /, *args: Given.args, **named: Given.kwargs) -> Answer:
        try:
            return await method(owner, batch_id, *args, **named)
        finally:
            owner._on_change(batch_id)

    return wrapped
