"""Work that a cancel must not cut in two."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Found = TypeVar("Found")


async def finish(work: Coroutine[Any, Any, Found], on_cancel: Callable[[], object] = lambda: None) -> Found:
    """Awaits `work` whole, even when the awaiting task is cancelled: then `on_cancel` is called at once.

    Answers what `work` answers, or raises what it raises; a cancel is raised again once `work` has ended.
    """
    running = asyncio.ensure_future(work)
    cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled = True
            on_cancel()
    if not cancelled:
        return running.result()
    if not running.cancelled():
        # Looked at, or it would be reported as never retrieved.
        running.exception()
    raise asyncio.CancelledError
