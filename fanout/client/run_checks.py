"""What an examination finds where rows and Temporal have to agree: runs, clocks, search attributes, fairness."""

import re
import shlex
from collections import defaultdict
from datetime import datetime, timedelta
from uuid import UUID

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

from fanout.client.findings import Code, Finding, Severity, some
from fanout.client.row_checks import skew
from fanout.client.starting import SEARCH_ATTRIBUTES, START_SECONDS
from fanout.client.sweeping import UNOPENED_FOR, Action, judge
from fanout.client.why import COMMAND, FIXES
from fanout.client.witness import Witness
from fanout.settings import Settings
from fanout.store import FIRST, BatchStore, ClockWitness, QuietBatch

MOST_ASKED = 200
"""So many quiet batches, and so many runs, are looked at."""
QUIET_FOR = timedelta(seconds=10)
CLOSED_FOR = timedelta(seconds=60)
CLOCKS_WITHIN = timedelta(hours=1)
CLOCK_BATCHES = 10
FIRST_FAIR_VERSION = (1, 29)
OF_WORKERS = (Code.NOBODY_POLLS, Code.NO_WORKER_HAS_THE_HANDLER)


class ServerOfRuns:
    """Of the Temporal server: what is registered, and what is switched on."""

    def __init__(self, temporal: Client, is_own_stack: bool) -> None:
        self._temporal = temporal
        self._is_own_stack = is_own_stack

    async def check_search_attributes(self) -> list[Finding]:
        """Filters in the Web UI need them; batches run without."""
        answer = await self._temporal.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=self._temporal.namespace), timeout=START_SECONDS
        )
        missing = [name for name, kind in SEARCH_ATTRIBUTES.items() if answer.custom_attributes.get(name) != kind]
        if not missing:
            return []
        detail = f"not registered in this namespace, or with another type: {', '.join(missing)}"
        return [Finding(Code.SEARCH_ATTRIBUTES_MISSING, Severity.WARNING, detail, f"{COMMAND} migrate")]

    async def check_fairness(self) -> list[Finding]:
        """Servers do not tell how they are configured; what their queues show of it has proved no evidence either."""
        if self._is_own_stack:
            return []
        answer = await self._temporal.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=START_SECONDS)
        return of_server_version(answer.server_version)


def of_server_version(version: str) -> list[Finding]:
    """What is known of fairness on a server of that version."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < FIRST_FAIR_VERSION:
        detail = f"the server {version} has no fairness: a tenant's big batch may go before everybody else's"
        return [Finding(Code.FAIRNESS_OFF, Severity.WARNING, detail, "upgrade the server to 1.29 or later")]
    detail = "whether the server has fairness switched on cannot be seen from outside"
    fix = "look whether matching.enableFairness is true in the server's dynamic configuration"
    return [Finding(Code.FAIRNESS_UNKNOWN, Severity.INFO, detail, fix)]


class RunChecks:
    """Of batches and their runs, by both witnesses."""

    def __init__(self, store: BatchStore, temporal: Client, settings: Settings, database_id: UUID) -> None:
        self._store = store
        self._temporal = temporal
        self._names = settings.names
        self._witness = Witness(temporal, settings.names, database_id)

    async def check_open_batches(self) -> list[Finding]:
        """Open batches that stand still: without a run, or with one that cannot go on."""
        server = await self._store.health.read_server()
        batches = await self._store.sweeps.list_quiet_batches(FIRST, MOST_ASKED, server.at - QUIET_FOR, UNOPENED_FOR)
        if not batches:
            return []
        pollers = await self._witness.count_pollers()
        found: dict[Code, list[UUID]] = defaultdict(list)
        for batch in batches:
            code = await self._ask(batch, pollers)
            # That no live worker has the handler is told from the rows, of every open batch.
            if code is not None and (batch.workers or code not in OF_WORKERS):
                found[code].append(batch.id)
        return [_of_batches(code, ids) for code, ids in found.items()]

    async def _ask(self, batch: QuietBatch, pollers: int) -> Code | None:
        verdict = judge(batch, await self._witness.ask(batch), pollers)
        if verdict.action is not Action.LEAVE:
            return Code.WORKFLOW_MISSING
        return None if verdict.cause is None else Code(verdict.cause)

    async def check_runs(self) -> list[Finding]:
        """Runs that go on although their batch is closed or gone."""
        prefix = f"{self._names.deployment}/"
        query = f"WorkflowType = 'Batch' AND ExecutionStatus = 'Running' AND TaskQueue = '{self._names.task_queue}'"
        ids: list[str] = []
        async for run in self._temporal.list_workflows(query, limit=MOST_ASKED, rpc_timeout=START_SECONDS):
            if run.id.startswith(prefix) and run.id.count("/") >= 2:
                ids.append(run.id)
        names = [_handler_and_key(each, prefix) for each in ids]
        left = [ids[place] for place in await self._store.health.list_keys_without_batch(names, CLOSED_FOR)]
        return [self._of_run(each) for each in left if await self._witness.is_running(each)]

    def _of_run(self, workflow_id: str) -> Finding:
        where = f"--namespace {shlex.quote(self._temporal.namespace)} --workflow-id {shlex.quote(workflow_id)}"
        detail = f"{workflow_id} runs in Temporal, and no open batch has that handler and key"
        fix = (
            f"temporal workflow signal {where} --name changed; if it does not end: temporal workflow terminate {where}"
        )
        return Finding(Code.RUN_WITHOUT_BATCH, Severity.WARNING, detail, fix)

    async def check_clocks(self) -> list[Finding]:
        """Holds the database's clock against Temporal's by what must have been before what, in the newest batches."""
        found: list[Finding] = []
        for batch in await self._store.health.list_clock_witnesses(CLOCKS_WITHIN, CLOCK_BATCHES):
            times = await self._witness.read_times(batch.id, batch.workflow_id)
            if times is None:
                continue
            found = _clocks_of(batch, *times)
            if not found:
                # One that agrees outweighs the others, whose run may have been started once more.
                return []
        return found


def _clocks_of(batch: ClockWitness, began: datetime, ended: datetime | None) -> list[Finding]:
    """A batch is created, then its run starts, then it is opened; it is closed, then its run ends."""
    found = skew("Temporal", began, batch.created_at, batch.opened_at, "the database")
    if not found and ended is not None and batch.closed_at is not None and ended < batch.closed_at:
        found = skew("Temporal", ended, batch.closed_at, batch.closed_at, "the database")
    return found


def _handler_and_key(workflow_id: str, prefix: str) -> tuple[str, str]:
    handler, _, key = workflow_id.removeprefix(prefix).partition("/")
    return handler, key


def _of_batches(code: Code, ids: list[UUID]) -> Finding:
    what = {
        Code.WORKFLOW_MISSING: "open batches have no run in Temporal, which the sweeper mends",
        Code.NOBODY_POLLS: "open batches wait; workers have rows, but none polls this Temporal's task queue",
        Code.WORKFLOW_TASK_FAILS: "open batches have a workflow task that fails again and again",
        Code.WORKFLOW_PAUSED: "open batches have a workflow that was paused in Temporal",
        Code.RUN_OF_OTHER_BATCH: "open batches have a workflow id under which a run of another batch goes on",
        Code.RUN_OF_OTHER_DATABASE: "open batches have a workflow id under which a run for another database goes on",
    }[code]
    fix = FIXES.get(code, f"{COMMAND} sweep --twice").replace("WORKFLOW_ID", "ID")
    severity = Severity.ERROR if code is Code.RUN_OF_OTHER_DATABASE else Severity.WARNING
    return Finding(code, severity, f"{len(ids):,} {what}: {some(ids)}", f"{fix}. {COMMAND} why {ids[0]}")
