"""`workers` and `handlers`: who works, and what can be worked."""

from collections.abc import Sequence
from typing import Any

from fanout.cli.local import local_handlers
from fanout.cli.session import Session
from fanout.cli.views import handlers_view, workers_view
from fanout.handlers import Handlers
from fanout.store import WorkerRow


async def workers(session: Session) -> None:
    """Lists the live workers."""
    async with session.connect() as client:
        found = await client.workers()
    if not session.output.as_json:
        session.output.show(workers_view(found) if found else "no worker is alive")
        return
    for worker in found:
        session.output.emit(_worker(worker))


def _worker(worker: WorkerRow) -> dict[str, Any]:
    return {
        "worker_id": worker.facts.id,
        "identity": worker.facts.identity,
        "handlers": sorted(worker.facts.handlers),
        "lanes": worker.lanes,
        "concurrency": worker.facts.concurrency,
        "build": worker.facts.build,
        "started_at": worker.started_at,
        "seen_at": worker.seen_at,
    }


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


def known_handlers(live: Sequence[WorkerRow], local: Handlers) -> list[dict[str, Any]]:
    """Each known handler once, by name; where workers differ it is as the newest of them tells."""
    facts: dict[str, dict[str, Any]] = {name: local[name].facts for name in local}
    counts = dict.fromkeys(facts, 0)
    for worker in live:
        facts |= worker.facts.handlers
        counts |= {name: counts.get(name, 0) + 1 for name in worker.facts.handlers}
    return [{"name": name, **facts[name], "workers": counts[name], "local": name in local} for name in sorted(facts)]
