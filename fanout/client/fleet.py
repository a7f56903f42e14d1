"""Who works, and what can be worked: one shape for command line and HTTP."""

from collections.abc import Sequence
from typing import Any

from fanout.handlers import Handlers
from fanout.store import WorkerRow


def worker_facts(worker: WorkerRow) -> dict[str, Any]:
    """One live worker."""
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


def known_handlers(live: Sequence[WorkerRow], local: Handlers) -> list[dict[str, Any]]:
    """Each known handler once, by name; where workers differ it is as the newest of them tells."""
    facts: dict[str, dict[str, Any]] = {name: local[name].facts for name in local}
    counts = dict.fromkeys(facts, 0)
    for worker in live:
        facts |= worker.facts.handlers
        counts |= {name: counts.get(name, 0) + 1 for name in worker.facts.handlers}
    return [{"name": name, **facts[name], "workers": counts[name], "local": name in local} for name in sorted(facts)]
