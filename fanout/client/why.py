"""Why a batch or an item does not run: the one reason that has to go first, when it may be over, and what mends it."""

import shlex
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from fanout.client.findings import some
from fanout.client.sweeping import Action, judge
from fanout.client.witness import Sighting, Witness
from fanout.settings import Settings
from fanout.states import SETTLED, BatchStatus, ItemStatus
from fanout.store import BatchRow, BatchStore, Duplicate, ItemStanding, QuietBatch, Standing

COMMAND = "python starter.py"
KNOWN_SHOWN = 10


class Reason(StrEnum):
    """The reasons there are. Those that the sweeper tells of too have the same names in its events."""

    RUNNING = "running"
    CLOSED = "closed"
    PURGED = "purged"
    PAUSED = "paused"
    FAILURE_BUDGET = "failure_budget"
    DEADLINE_PASSED = "deadline_passed"
    CANCELLING = "cancelling"
    BREAKER_OPEN = "breaker_open"
    NOBODY_POLLS = "nobody_polls"
    NO_WORKER_HAS_THE_HANDLER = "no_worker_has_the_handler"
    WORKFLOW_MISSING = "workflow_missing"
    WORKFLOW_TASK_FAILS = "workflow_task_fails"
    WORKFLOW_PAUSED = "workflow_paused"
    RUN_OF_OTHER_BATCH = "run_of_other_batch"
    RUN_OF_OTHER_DATABASE = "run_of_other_database"
    WINDOW_FULL = "window_full"
    WAITS_UNTIL = "waits_until"
    WORKER_SILENT = "worker_silent"
    QUEUED = "queued"
    SETTLED = "settled"
    DATABASE_UNREACHABLE = "database_unreachable"
    TEMPORAL_UNREACHABLE = "temporal_unreachable"


MOVING = frozenset({Reason.RUNNING, Reason.WINDOW_FULL, Reason.WAITS_UNTIL, Reason.WORKER_SILENT, Reason.QUEUED})
"""Of a batch with one of these each item has a reason of its own."""
FIXES: dict[str, str] = {
    Reason.NOBODY_POLLS: "start a worker: python worker.py --handlers MODULE",
    Reason.WORKFLOW_TASK_FAILS: "put the code back that the run began with, or mend it, and restart the workers",
    Reason.WORKFLOW_PAUSED: "temporal workflow unpause --workflow-id WORKFLOW_ID",
    Reason.RUN_OF_OTHER_BATCH: "wait for that run, or: temporal workflow terminate --workflow-id WORKFLOW_ID",
    Reason.RUN_OF_OTHER_DATABASE: "give each database a FANOUT_NAME or a namespace of its own",
}


class Why(BaseModel):
    """The answer: `next_at` is when the reason is over, or looked at again by itself, where that is known.

    `duplicates` is how many other starts joined the batch, None where the database could not be asked, and
    `recent_duplicates` are the newest of them, newest first.
    """

    model_config = ConfigDict(frozen=True)

    reason: Reason
    detail: str
    next_at: datetime | None = None
    fix: str | None = None
    duplicates: int | None = None
    recent_duplicates: tuple[Duplicate, ...] = ()


class Inquiry:
    """Asks the rows and Temporal, in the order in which reasons have to go. It changes nothing."""

    def __init__(self, store: BatchStore, witness: Witness, settings: Settings) -> None:
        self._store = store
        self._witness = witness
        self._sweep_every = timedelta(seconds=settings.sweep_every_seconds)
        self._stale_seconds = settings.heartbeat_seconds

    async def why_batch(self, batch: BatchRow) -> Why:
        """Why no item of the batch runs, or `running`."""
        return _why_stopped(batch) or await self._why_unattended(batch) or await self._why_waiting(batch)

    async def why_item(self, batch: BatchRow, item_key: str) -> Why:
        """Why that item does not run, or `running`; raises UnknownItem."""
        item = await self._store.standings.read_item_standing(batch.id, item_key)
        if item.status in SETTLED:
            return _why_settled(item)
        if item.status is ItemStatus.PROCESSING and item.live:
            return Why(reason=Reason.RUNNING, detail=f"on worker {item.worker} {_since(item)}")
        of_batch = await self.why_batch(batch)
        if of_batch.reason not in MOVING:
            return of_batch.model_copy(update={"detail": f"it is {item.status}, and of its batch: {of_batch.detail}"})
        if item.status is ItemStatus.PROCESSING:
            return self._why_silent(f"it was claimed by {_worker(item)} {_since(item)}, which")
        if item.due_at is not None:
            return _waits(f"it waits after {item.error_type}, {item.attempts} attempts charged", item.due_at)
        return await self._why_due(batch, "it")

    async def _why_unattended(self, batch: BatchRow) -> Why | None:
        """What keeps anybody from working on it: the hindrances that the sweeper tells of, and a run that is gone."""
        workers = await self._store.list_workers()
        if not workers:
            return _stands(Reason.NOBODY_POLLS, "no worker is alive")
        quiet = await self._store.sweeps.read_quiet_batch(batch.id)
        if quiet is None:
            # It was closed meanwhile.
            return _why_closed(await self._store.read_batch(batch.id) or batch)
        if quiet.workers == 0:
            known = some(sorted({name for worker in workers for name in worker.facts.handlers}), KNOWN_SHOWN)
            return Why(
                reason=Reason.NO_WORKER_HAS_THE_HANDLER,
                detail=f"none of {len(workers)} live workers has {batch.handler}; they have {known}",
                fix=f"start a worker with the module that defines {batch.handler}: python worker.py --handlers MODULE",
            )
        said = await self._witness.ask(quiet)
        verdict = judge(quiet, said, await self._witness.count_pollers())
        if verdict.action is not Action.LEAVE:
            return await self._why_missing(quiet, said, verdict.action)
        return None if verdict.cause is None else await self._why_hindered(quiet, said, Reason(verdict.cause))

    async def _why_missing(self, batch: QuietBatch, said: Sighting, action: Action) -> Why:
        last = await self._store.sweeps.read_last_sweep()
        will = {
            Action.START: "starts it",
            Action.REVIVE: "starts it again in a new epoch",
            Action.CANCEL: "cancels the batch, as a person has terminated the run",
            Action.FAIL: "ends the batch as failed, as it was revived too often",
        }.get(action, "")
        return Why(
            reason=Reason.WORKFLOW_MISSING,
            detail=f"Temporal has no run for it ({said.finding.replace('_', ' ')}); the sweeper {will}",
            next_at=None if last is None else last.began_at + self._sweep_every,
            fix=f"{COMMAND} sweep --twice",
        )

    async def _why_hindered(self, batch: QuietBatch, said: Sighting, cause: Reason) -> Why:
        details = {
            Reason.NOBODY_POLLS: "live workers have rows, but none polls this Temporal's task queue",
            Reason.WORKFLOW_PAUSED: "its workflow was paused in Temporal",
            Reason.RUN_OF_OTHER_BATCH: "a run of another batch has its workflow id",
            Reason.RUN_OF_OTHER_DATABASE: "a run for another database has its workflow id",
        }
        detail = details.get(cause, cause)
        if cause is Reason.WORKFLOW_TASK_FAILS:
            told = await self._witness.read_task_failure(batch.workflow_id, said.run_id or "")
            detail = f"its workflow task is at attempt {said.task_attempt}: {told or 'Temporal names no cause'}"
        fix = FIXES[cause].replace("WORKFLOW_ID", shlex.quote(batch.workflow_id))
        return Why(reason=cause, detail=detail, fix=fix)

    async def _why_waiting(self, batch: BatchRow) -> Why:
        """What its open rows wait for."""
        rows = await self._store.standings.read_standing(batch.id)
        if rows.running:
            return _why_running(batch, rows)
        if rows.silent:
            return self._why_silent(f"{rows.silent:,} items are claimed by workers that")
        if rows.due:
            return await self._why_due(batch, f"{rows.due:,} items")
        if rows.due_at is not None:
            return _waits(f"{rows.waiting:,} items wait after errors such as {rows.error_type}", rows.due_at)
        return Why(reason=Reason.QUEUED, detail="every item is settled; its workflow is about to close it")

    async def _why_due(self, batch: BatchRow, who: str) -> Why:
        """Nothing holds them up but that there is no place for them yet."""
        crew = await self._store.standings.read_slots(batch.handler)
        if crew.slots and crew.busy >= crew.slots:
            return Why(
                reason=Reason.WINDOW_FULL,
                detail=f"{who} could start, but all {crew.slots:,} slots of its workers are busy with other items",
                fix="start another worker, or raise --concurrency",
            )
        detail = f"{who} could start, and will once a worker takes up the range"
        if batch.status is BatchStatus.PENDING:
            detail = "its workflow was started, and is about to open it"
        return Why(reason=Reason.QUEUED, detail=detail)

    def _why_silent(self, who: str) -> Why:
        return Why(
            reason=Reason.WORKER_SILENT,
            detail=f"{who} gave no sign of life for {self._stale_seconds:g} s; the next claim takes over",
            fix="nothing while another worker lives; else start one: python worker.py --handlers MODULE",
        )


def _why_stopped(batch: BatchRow) -> Why | None:
    """What somebody, or a rule of the batch's own, has decided."""
    if batch.closed:
        return _why_closed(batch)
    if batch.status is BatchStatus.CANCELLING:
        return _why_cancelling(batch)
    if batch.status is BatchStatus.PAUSED:
        return _why_paused(batch)
    if batch.deadline_seconds is not None and batch.deadline_seconds <= 0:
        return _deadline(batch, "its deadline has passed; the next worker to look at it ends it as failed")
    if batch.breaker_type is not None:
        return Why(
            reason=Reason.BREAKER_OPEN,
            detail=f"its breaker is open: too many items in a row ended with {batch.breaker_type}",
            next_at=batch.breaker_until,
            fix=f"mend what the handler depends on; one item is tried at next_at. Then: {COMMAND} retry {batch.id}",
        )
    return None


def _why_closed(batch: BatchRow) -> Why:
    counts = f"{batch.completed:,} completed, {batch.failed:,} failed, {batch.cancelled:,} cancelled"
    detail = f"it is closed as {batch.status.replace('_', ' ')} ({counts})"
    detail += f": {batch.reason}" if batch.reason else ""
    if batch.purged_at is not None:
        return Why(reason=Reason.PURGED, detail=f"{detail}, and purged", fix="submit it again under another key")
    fix = None
    if batch.failed:
        fix = f"{COMMAND} retry {batch.id}"
    elif batch.cancelled:
        fix = f"{COMMAND} retry {batch.id} --status cancelled"
    return Why(reason=Reason.CLOSED, detail=detail, fix=fix)


def _why_cancelling(batch: BatchRow) -> Why:
    if batch.reason == "deadline":
        return _deadline(batch, f"its deadline has passed; {batch.open:,} items that run may end")
    detail = (
        f"it is being cancelled{f' ({batch.reason})' if batch.reason else ''}; {batch.open:,} items that run may end"
    )
    fix = "nothing: it closes within half a minute" if batch.workers else "start a worker: it closes the batch"
    return Why(reason=Reason.CANCELLING, detail=detail, fix=fix)


def _deadline(batch: BatchRow, detail: str) -> Why:
    fix = f"once it is closed: {COMMAND} retry {batch.id} --status cancelled"
    return Why(reason=Reason.DEADLINE_PASSED, detail=detail, fix=fix)


def _why_paused(batch: BatchRow) -> Why:
    resume = f"{COMMAND} resume {batch.id}"
    if batch.reason == "failure_budget":
        detail = f"it is paused: {batch.failed:,} items failed, more than its budget allows"
        return Why(reason=Reason.FAILURE_BUDGET, detail=detail, fix=f"look at results --status failed, then: {resume}")
    return Why(reason=Reason.PAUSED, detail="a person has paused it", fix=resume)


def _why_running(batch: BatchRow, rows: Standing) -> Why:
    on = ", ".join(rows.holders)
    left = (
        f"{rows.due:,} are due, {rows.waiting:,} wait for their time"
        if rows.due or rows.waiting
        else "no other is left"
    )
    return Why(reason=Reason.RUNNING, detail=f"{rows.running:,} items run on {on}; {left}")


def _why_settled(item: ItemStanding) -> Why:
    at = "" if item.settled_at is None else f" at {item.settled_at:%Y-%m-%d %H:%M:%S} UTC"
    detail = f"it is {item.status}{at}"
    return Why(reason=Reason.SETTLED, detail=f"{detail}: {item.code}" if item.code else detail)


def _waits(detail: str, until: datetime) -> Why:
    return Why(reason=Reason.WAITS_UNTIL, detail=detail, next_at=until, fix="nothing: it starts by itself at next_at")


def _stands(reason: Reason, detail: str) -> Why:
    return Why(reason=reason, detail=detail, fix=FIXES[reason])


def _worker(item: ItemStanding) -> str:
    return "a worker that is gone" if item.worker is None else f"worker {item.worker}"


def _since(item: ItemStanding) -> str:
    at = "" if item.claimed_at is None else f"since {item.claimed_at:%Y-%m-%d %H:%M:%S} UTC, "
    return f"{at}attempt {item.attempts + 1}"
