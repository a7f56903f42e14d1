"""`workers` and `handlers`: who works, and what can be worked."""

from fanout.cli.local import local_handlers
from fanout.cli.session import Session
from fanout.cli.views import handlers_view, workers_view
from fanout.client.fleet import known_handlers, worker_facts


async def workers(session: Session) -> None:
    """Lists the live workers."""
    async with session.connect() as client:
        found = await client.workers()
    if not session.output.as_json:
        session.output.show(workers_view(found) if found else "no worker is alive")
        return
    for worker in found:
        session.output.emit(worker_facts(worker))


async def handlers(session: Session) -> None:
    """Lists the handlers that live workers know, and those of the modules that can be imported here."""
    local = local_handlers(session.settings)
    async with session.connect() as client:
        found = known_handlers(await client.workers(), local)
    if not session.output.as_json:
        session.output.show(handlers_view(found))
        return
    for handler in found:
        session.output.emit(handler)
