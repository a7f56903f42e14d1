"""Handlers that call a service which is down until the test says otherwise."""

from datetime import timedelta

from fanout import Breaker, Context, PermanentError, handler
from tests.handlers.cases import LEDGER, note


@handler(
    "service.call",
    permanent=(PermissionError,),
    breaker=Breaker(failures=5, delay=timedelta(seconds=2), on=(PermissionError,)),
)
async def call(payload: str, ctx: Context) -> str:
    """Fails as the service's authentication does while the file `up` is missing; odd payloads fail by themselves."""
    note(ctx)
    if payload == "odd":
        raise PermanentError("this one is no paper", code="odd")
    if not (LEDGER / "up").exists():
        raise PermissionError("401")
    return "called"
