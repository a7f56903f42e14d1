"""An examination of a whole deployment: every check there is, each for itself, within a time limit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fanout.client.findings import Code, Finding, Severity
from fanout.client.row_checks import RowChecks, ServerChecks
from fanout.client.run_checks import RunChecks, ServerOfRuns
from fanout.client.schedule_checks import ScheduleChecks
from fanout.client.why import COMMAND
from fanout.errors import SchemaMismatch
from fanout.settings import Settings
from fanout.store import OUTAGE, BatchStore

CHECK_SECONDS = 30.0
AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
WORST_FIRST = tuple(reversed(Severity))

Check = Callable[[], Awaitable[list[Finding]]]

log = logging.getLogger("fanout.doctor")


class Doctor:
    """Looks at everything, changes nothing. What one check cannot find out is a finding too, and ends no other.

    `database_id` is None where the schema does not fit, which `mismatch` tells of: then only the servers are looked at.
    """

    def __init__(
        self,
        store: BatchStore,
        temporal: Client,
        settings: Settings,
        database_id: UUID | None,
        mismatch: SchemaMismatch | None = None,
        is_own_stack: bool = False,
    ) -> None:
        self._store = store
        self._temporal = temporal
        self._settings = settings
        self._database_id = database_id
        self._mismatch = mismatch
        self._is_own_stack = is_own_stack

    async def examine(self) -> list[Finding]:
        """All findings, the worst first. Raises where a server is lost on the way: its own error, or RPCError."""
        found = [] if self._mismatch is None else [_of_schema(self._mismatch)]
        for check in self._checks():
            found += await _within_limit(check)
        return sorted(found, key=lambda finding: WORST_FIRST.index(finding.severity))

    def _checks(self) -> Sequence[Check]:
        server = ServerOfRuns(self._temporal, self._is_own_stack)
        checks: list[Check] = [ServerChecks(self._store.health).check_server, server.check_search_attributes]
        if self._database_id is None:
            return checks
        rows = RowChecks(self._store, self._settings)
        schedules = ScheduleChecks(self._store, self._temporal, self._settings, self._database_id)
        runs = RunChecks(self._store, self._temporal, self._settings, self._database_id)
        return [
            *checks,
            server.check_fairness,
            rows.check_handlers,
            rows.check_builds,
            rows.check_claims,
            rows.check_stopped,
            rows.check_surges,
            schedules.check_schedules,
            schedules.check_sweeper,
            runs.check_open_batches,
            runs.check_runs,
            runs.check_clocks,
        ]


async def _within_limit(check: Check) -> list[Finding]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except RPCError as error:
        if error.status in AWAY:
            raise
        return [_not_checked(check, error.message or error.status.name)]
    except TimeoutError:
        return [_not_checked(check, "it took too long")]
    except OUTAGE:
        raise
    except Exception as error:
        log.warning("%s failed", _name(check), exc_info=True)
        return [_not_checked(check, type(error).__name__)]


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")


def _not_checked(check: Check, cause: str) -> Finding:
    detail = f"{_name(check)}: could not be looked at: {cause}"
    return Finding(
        Code.NOT_CHECKED, Severity.INFO, detail, f"{COMMAND} doctor --log-level info, with more rights or time"
    )


def _of_schema(mismatch: SchemaMismatch) -> Finding:
    if mismatch.found < mismatch.needed:
        return Finding(Code.SCHEMA_BEHIND, Severity.ERROR, str(mismatch), f"{COMMAND} migrate")
    return Finding(Code.SCHEMA_AHEAD, Severity.ERROR, str(mismatch), "install the version of Fanout that migrated it")
