"""What the database alone tells an examination."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fanout.builds import build
from fanout.client.findings import Code, Finding, Severity, some
from fanout.client.why import COMMAND, FIXES
from fanout.devstack.postgres import CLUSTER_NAME
from fanout.settings import Settings
from fanout.store import BatchStore, HealthStore, ServerFacts, StaleClaim, StoppedBatch, Surge, WorkerRow

MOST_SKEW = timedelta(seconds=2)
NEARLY_ALL = 0.85
SURGE_WITHIN = timedelta(hours=1)
SURGE_TOGETHER = 20
SURGE_ALIKE = 5
SHORTEST_SILENCE = timedelta(seconds=60)


class ServerChecks:
    """Of the server: they need no schema."""

    def __init__(self, health: HealthStore) -> None:
        self._health = health

    async def check_server(self) -> list[Finding]:
        """Settings that lose data or stop work, and a clock that is not this machine's."""
        before = datetime.now(UTC)
        started = time.monotonic()
        facts = await self._health.read_server()
        after = before + timedelta(seconds=time.monotonic() - started)
        return [*of_settings(facts), *skew("the database", facts.at, before, after, "this machine")]


def of_settings(facts: ServerFacts) -> list[Finding]:
    """What of the server's settings loses data or stops work, for certain."""
    found = []
    if not facts.fsync and facts.cluster_name != CLUSTER_NAME:
        detail = "the database has fsync off: a crash of its machine may destroy it"
        found.append(Finding(Code.FSYNC_OFF, Severity.ERROR, detail, "alter system set fsync = on, and reload"))
    if facts.synchronous_commit == "off":
        detail = "the database has synchronous_commit off: a crash forgets results that were told to be recorded"
        fix = "alter system set synchronous_commit = on, and reload"
        found.append(Finding(Code.SYNCHRONOUS_COMMIT_OFF, Severity.WARNING, detail, fix))
    if not facts.autovacuum:
        detail = "the database has autovacuum off: every settle of an item leaves something to clear away"
        found.append(
            Finding(Code.AUTOVACUUM_OFF, Severity.WARNING, detail, "alter system set autovacuum = on, and reload")
        )
    if facts.connections >= NEARLY_ALL * facts.most_connections:
        detail = f"{facts.connections:,} of the database's {facts.most_connections:,} connections are in use"
        fix = "raise max_connections, or put a pooler in between"
        found.append(Finding(Code.CONNECTIONS_NEARLY_USED, Severity.WARNING, detail, fix))
    return found


def skew(whose: str, at: datetime, earliest: datetime, latest: datetime, other: str) -> list[Finding]:
    """A finding where the clock `whose` showed `at` at a moment that lay, by the clock of `other`, between the two."""
    if earliest - MOST_SKEW <= at <= latest + MOST_SKEW:
        return []
    ahead = at > latest
    seconds = (at - latest if ahead else earliest - at).total_seconds()
    detail = f"the clock of {whose} is at least {seconds:.1f} s {'ahead of' if ahead else 'behind'} that of {other}"
    return [Finding(Code.CLOCK_SKEW, Severity.WARNING, detail, "keep both by NTP: timedatectl set-ntp true")]


class RowChecks:
    """Of batches, claims and workers."""

    def __init__(self, store: BatchStore, settings: Settings) -> None:
        self._store = store
        self._health = store.health
        self._stale_after = timedelta(seconds=settings.heartbeat_seconds)
        self._long = timedelta(seconds=settings.stall_after_seconds)

    async def check_surges(self) -> list[Finding]:
        """Many new batches of one handler at one moment: several schedules for one thing make such, and loops."""
        surges = await self._health.list_surges(SURGE_WITHIN, SURGE_TOGETHER, SURGE_ALIKE)
        return [_of_surge(surge) for surge in surges]

    async def check_handlers(self) -> list[Finding]:
        """Open batches that no live worker could work on."""
        missing = await self._health.list_unknown_handlers()
        if not missing:
            return []
        batches = sum(each.batches for each in missing)
        names = some(each.handler for each in missing)
        if not await self._store.list_workers():
            detail = f"no worker is alive, and {batches:,} batches wait: {names}"
            return [Finding(Code.NOBODY_POLLS, Severity.WARNING, detail, FIXES[Code.NOBODY_POLLS])]
        detail = f"{batches:,} batches wait for a worker that has their handler: {names}"
        fix = "start a worker with the module that defines it: python worker.py --handlers MODULE"
        return [Finding(Code.NO_WORKER_HAS_THE_HANDLER, Severity.WARNING, detail, fix)]

    async def check_stopped(self) -> list[Finding]:
        """Open breakers, and pauses that somebody may have forgotten."""
        return [_of_stopped(batch) for batch in await self._health.list_stopped(self._long)]

    async def check_claims(self) -> list[Finding]:
        """Items whose worker has been silent for so long that another should have taken them over."""
        silence = max(3 * self._stale_after, SHORTEST_SILENCE)
        return [_of_claim(claim) for claim in await self._health.list_stale_claims(silence)]

    async def check_builds(self) -> list[Finding]:
        """Workers whose code is not this command's."""
        return _of_builds(await self._store.list_workers())


def _of_surge(surge: Surge) -> Finding:
    detail = (
        f"{surge.together:,} batches of {surge.handler} were made within a second at {surge.at:%Y-%m-%d %H:%M:%S} UTC, "
        f"{surge.alike:,} of them with the same items"
    )
    fix = f"{COMMAND} list --handler {surge.handler}; give their starts one key, and look who makes them"
    return Finding(Code.SURGE, Severity.WARNING, detail, fix)


def _of_stopped(batch: StoppedBatch) -> Finding:
    if batch.breaker_type is not None and batch.status == "processing":
        detail = f"the breaker of batch {batch.id} is open: its items end with {batch.breaker_type}"
        fix = f"mend what its handler depends on; it goes on by itself. {COMMAND} why {batch.id}"
        return Finding(Code.BREAKER_OPEN, Severity.WARNING, detail, fix)
    by_budget = batch.reason == "failure_budget"
    hours = (batch.paused_seconds or 0) / 3_600
    detail = f"batch {batch.id} has been paused for {hours:.1f} h{', by its failure budget' if by_budget else ''}"
    severity = Severity.WARNING if by_budget else Severity.INFO
    fix = f"{COMMAND} resume {batch.id}, or {COMMAND} cancel {batch.id}"
    return Finding(Code.PAUSED_FOR_LONG, severity, detail, fix)


def _of_claim(claim: StaleClaim) -> Finding:
    who = f"worker {claim.worker_id}" + ("" if claim.worker is None else f" ({claim.worker})")
    detail = (
        f"{who} is silent and holds {claim.rows:,} items of {claim.batches:,} batches, one since "
        f"{claim.since:%Y-%m-%d %H:%M:%S} UTC; batch {claim.batch_id} is one of them"
    )
    fix = f"start a worker that has the handler, it takes them over. {COMMAND} why {claim.batch_id}"
    return Finding(Code.STALE_CLAIMS, Severity.WARNING, detail, fix)


def _of_builds(workers: Sequence[WorkerRow]) -> list[Finding]:
    here = build()
    others = [worker.facts for worker in workers if worker.facts.build != here]
    if not others:
        return []
    listed = some(f"{facts.identity} ({facts.build})" for facts in others)
    detail = f"{len(others):,} of {len(workers):,} workers are of another build than this command ({here}): {listed}"
    return [
        Finding(Code.BUILD_DIFFERS, Severity.WARNING, detail, "restart them with the new code: SIGTERM drains them")
    ]
