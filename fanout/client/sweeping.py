"""One pass of the sweeper: looks at every quiet batch, asks Temporal, and heals what two passes agree on."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from temporalio.client import Client

from fanout.client.starting import Starter
from fanout.client.witness import Finding, Sighting, Witness
from fanout.logs import about
from fanout.metrics import NO_METERS, Meters
from fanout.settings import Settings
from fanout.states import BatchStatus
from fanout.store import FIRST, BatchStore, QuietBatch, Standstill

PAGE = 100
MOST_BATCHES = 2_000
"""So many quiet batches are looked at in one pass; the next one begins behind them."""
UNOPENED_FOR = timedelta(seconds=10)
MOST_REVIVALS = 3
FAILING_ATTEMPTS = 3
"""A workflow task at its third attempt fails for a reason that does not go away by itself."""
TOO_MANY_REVIVALS = "too_many_revivals"
# A pass stops before whoever waits for it gives up.
SHARE_OF_LIMIT = 0.8

log = logging.getLogger("fanout.sweeper")


class Action(StrEnum):
    """What is to be done for a batch."""

    LEAVE = "leave"
    START = "start"
    REVIVE = "revive"
    CANCEL = "cancel"
    FAIL = "fail"


DONE = {Action.START: "started", Action.REVIVE: "revived", Action.CANCEL: "cancelled", Action.FAIL: "failed"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What both witnesses together come to; `cause` names what holds up a batch that is left alone."""

    action: Action
    cause: str | None = None

    def __str__(self) -> str:
        return self.action if self.cause is None else f"{self.action}: {self.cause}"


def judge(batch: QuietBatch, said: Sighting, pollers: int) -> Verdict:
    """Decides from the row and from what Temporal says of its run. How long anything has run decides nothing."""
    match said.finding:
        case Finding.RUNNING:
            return Verdict(Action.LEAVE, _hindrance(batch, said, pollers))
        case Finding.PAUSED:
            return Verdict(Action.LEAVE, "workflow_paused")
        case Finding.OTHER_BATCH | Finding.OTHER_DATABASE:
            return Verdict(Action.LEAVE, f"run_of_{said.finding}")
        case _ if batch.status is BatchStatus.CANCELLING:
            # Decided already; a run is needed to close it.
            return Verdict(Action.START)
        case Finding.TERMINATED:
            return Verdict(Action.CANCEL)
        case _ if batch.owes_start or (said.finding is Finding.NOT_FOUND and batch.status is BatchStatus.PENDING):
            return Verdict(Action.START)
        case _:
            return Verdict(Action.REVIVE if batch.revivals < MOST_REVIVALS else Action.FAIL)


def _hindrance(batch: QuietBatch, said: Sighting, pollers: int) -> str | None:
    if said.task_attempt >= FAILING_ATTEMPTS:
        return "workflow_task_fails"
    if pollers == 0:
        return "nobody_polls"
    if batch.workers == 0 and batch.status in (BatchStatus.PENDING, BatchStatus.PROCESSING):
        return "no_worker_has_the_handler"
    return None


@dataclass(slots=True)
class SweepReport:
    """What a pass did, a line a batch, each with the evidence of both witnesses."""

    examined: int = 0
    healed: list[dict[str, Any]] = field(default_factory=list)
    left_alone: list[dict[str, Any]] = field(default_factory=list)
    failed: int = 0

    def heal(self, batch_id: UUID, action: str, evidence: dict[str, Any]) -> None:
        """A batch that was changed or started."""
        log.warning("%s by the sweeper; %s", action, evidence, extra=about(batch_id))
        self.healed.append({"batch_id": batch_id, "action": action, "evidence": evidence})

    def leave(self, batch_id: UUID, cause: str, evidence: dict[str, Any]) -> None:
        """A batch that stays as it is, and why."""
        self.left_alone.append({"batch_id": batch_id, "cause": cause, "evidence": evidence})


class Sweeping:
    """Runs passes. Any number of them may run at once, anywhere: each write tests what was seen, so one of them has it.

    A pass that dies half-way has done whole batches; the start that a changed row needs is owed by it, and is made up
    for by the next pass.
    """

    def __init__(
        self, store: BatchStore, temporal: Client, starter: Starter, settings: Settings, meters: Meters = NO_METERS
    ) -> None:
        self._store = store
        self._sweeps = store.sweeps
        self._meters = meters
        self._witness = Witness(temporal, settings.names, starter.database_id)
        self._starter = starter
        self._limit_seconds = settings.sweep_limit_seconds
        self._stall_seconds = settings.stall_after_seconds
        self.apart_seconds = settings.sweep_every_seconds / 2
        """What two passes must lie apart to agree."""

    async def run_pass(self) -> SweepReport:
        """Looks at every quiet batch once, within the time limit; what goes wrong with one batch stays with it.

        Raises RPCError where Temporal does not answer at all, and the database's error where that does not.
        """
        async with asyncio.timeout(self._limit_seconds):
            return await self._run_pass(time.monotonic() + self._limit_seconds * SHARE_OF_LIMIT)

    async def _run_pass(self, stop_at: float) -> SweepReport:
        # First of all: a Temporal that does not know its namespace would be taken for one that has lost all runs.
        pollers = await self._witness.count_pollers()
        start = await self._sweeps.begin_pass(timedelta(seconds=2 * self.apart_seconds))
        report = SweepReport()
        after, whole = start.resume_after or FIRST, False
        while not whole and report.examined < MOST_BATCHES and time.monotonic() < stop_at:
            page = await self._sweeps.list_quiet_batches(after, PAGE, start.quiet_since, UNOPENED_FOR)
            whole = len(page) < PAGE
            for batch in page:
                if time.monotonic() > stop_at:
                    whole = False
                    break
                await self._look_at(batch, pollers, report)
                after = batch.id
        rest = None if whole else after
        await self._sweeps.end_pass(start.began_at, report.examined, len(report.healed), report.failed, rest)
        return report

    async def _look_at(self, batch: QuietBatch, pollers: int, report: SweepReport) -> None:
        report.examined += 1
        try:
            await self._sweep(batch, pollers, report)
        except Exception as error:
            # One batch's trouble must not keep the others from being looked at, whatever it is.
            log.warning("the batch could not be swept", exc_info=True, extra=about(batch.id, handler=batch.handler))
            report.failed += 1
            report.leave(batch.id, "error", {"row": batch.evidence, "error": type(error).__name__})

    async def _sweep(self, batch: QuietBatch, pollers: int, report: SweepReport) -> None:
        said = await self._witness.ask(batch)
        verdict = judge(batch, said, pollers)
        seen = await self._sweeps.note_verdict(batch, str(verdict), said.run_id)
        evidence = {
            "row": {**batch.evidence, "quiet_seconds": round(seen.quiet_seconds, 1)},
            "temporal": {**said.evidence, "pollers": pollers},
        }
        agreed = seen.found_seconds >= self.apart_seconds
        if verdict.action is Action.LEAVE:
            await self._tell(batch, verdict, seen, agreed, evidence)
            report.leave(batch.id, verdict.cause or said.finding, evidence)
        elif not agreed and verdict.action is not Action.START:
            report.leave(batch.id, "not_agreed_yet", evidence)
        elif await self._act(batch, verdict.action, said, evidence):
            self._meters.count_swept(DONE[verdict.action])
            report.heal(batch.id, DONE[verdict.action], evidence)
        else:
            report.leave(batch.id, "moved_on", evidence)

    async def _tell(
        self, batch: QuietBatch, verdict: Verdict, seen: Standstill, agreed: bool, evidence: dict[str, Any]
    ) -> None:
        """Events that change nothing: what holds the batch up, and that it is slow. Once a standstill each."""
        if verdict.cause is not None and agreed and verdict.cause not in seen.told:
            data = {"cause": verdict.cause, "evidence": evidence}
            if await self._sweeps.tell_once(batch.id, verdict.cause, "stalled", data):
                self._meters.count_stalled(verdict.cause)
                log.warning("it stands still: %s", verdict.cause, extra=about(batch.id, handler=batch.handler))
        slow = batch.status is BatchStatus.PROCESSING and seen.quiet_seconds >= self._stall_seconds
        if slow and "slow" not in seen.told:
            await self._sweeps.tell_once(batch.id, "slow", "slow", {"evidence": evidence})

    async def _act(self, batch: QuietBatch, action: Action, said: Sighting, evidence: dict[str, Any]) -> bool:
        match action:
            case Action.START:
                data = {"action": DONE[action], "evidence": evidence}
                await self._sweeps.tell_once(batch.id, action, "swept", data)
                changed = True
            case Action.REVIVE:
                changed = await self._sweeps.revive_batch(batch, evidence)
            case Action.CANCEL:
                changed = await self._sweeps.abandon_batch(batch, "cancelled", said.reason or "", evidence)
            case Action.FAIL:
                changed = await self._sweeps.abandon_batch(batch, "failed", TOO_MANY_REVIVALS, evidence)
            case Action.LEAVE:
                raise AssertionError("nothing to do")
            case _:
                assert_never(action)
        return changed and await self._start(batch.id)

    async def _start(self, batch_id: UUID) -> bool:
        """Starts the batch's run, unless the batch is closed by now; a run that is there already is only woken."""
        row = await self._store.read_batch(batch_id)
        if row is None or row.closed:
            return False
        await self._starter.start(row)
        if row.status is BatchStatus.CANCELLING:
            # For the run to end as Canceled; one that ends as Failed does so all the same.
            await self._starter.request_cancel(row, row.reason)
        await self._sweeps.note_start(batch_id)
        return True
