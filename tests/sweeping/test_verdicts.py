"""What the two witnesses together come to, for every answer that Temporal can give."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from fanout.client.sweeping import MOST_REVIVALS, Action, Verdict, judge
from fanout.client.witness import Finding, Sighting
from fanout.states import CLOSED, BatchStatus
from fanout.store import QuietBatch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = QuietBatch(
    id=uuid4(),
    handler="test.echo",
    workflow_id="fanout/test.echo/k",
    status=BatchStatus.PROCESSING,
    epoch=1,
    total=3,
    settled=1,
    progress_at=NOW,
    created_at=NOW,
    run_id=None,
    revivals=0,
    owes_start=False,
    workers=1,
)
OPEN = [status for status in BatchStatus if status not in CLOSED]
LOST = [
    Finding.NOT_FOUND,
    Finding.COMPLETED,
    Finding.FAILED,
    Finding.CANCELED,
    Finding.TIMED_OUT,
    Finding.TERMINATED_BY_SERVER,
]
SOMEBODY_ELSES = [Finding.OTHER_BATCH, Finding.OTHER_DATABASE]


def verdict(finding: Finding, batch: QuietBatch = BATCH, task_attempt: int = 1, pollers: int = 1) -> Verdict:
    return judge(batch, Sighting(finding, {}, task_attempt=task_attempt), pollers)


@pytest.mark.parametrize("status", OPEN)
@pytest.mark.parametrize("finding", [Finding.RUNNING, Finding.PAUSED, *SOMEBODY_ELSES])
def test_nothing_is_done_to_a_batch_while_a_run_is_there(finding: Finding, status: BatchStatus) -> None:
    for batch in (BATCH, replace(BATCH, owes_start=True), replace(BATCH, revivals=9), replace(BATCH, workers=0)):
        found = verdict(finding, replace(batch, status=status), task_attempt=9, pollers=0)
        assert found.action is Action.LEAVE


@pytest.mark.parametrize("finding", LOST)
def test_a_lost_run_is_replaced_three_times_and_then_no_more(finding: Finding) -> None:
    for status in (BatchStatus.PROCESSING, BatchStatus.PAUSED):
        for revivals in range(MOST_REVIVALS):
            assert verdict(finding, replace(BATCH, status=status, revivals=revivals)).action is Action.REVIVE
        assert verdict(finding, replace(BATCH, status=status, revivals=MOST_REVIVALS)).action is Action.FAIL


def test_a_run_that_a_person_terminated_ends_its_batch() -> None:
    for status in (BatchStatus.PENDING, BatchStatus.PROCESSING, BatchStatus.PAUSED):
        for batch in (BATCH, replace(BATCH, owes_start=True), replace(BATCH, revivals=9)):
            assert verdict(Finding.TERMINATED, replace(batch, status=status)).action is Action.CANCEL


def test_a_batch_that_nobody_started_is_started_in_the_same_epoch() -> None:
    pending = replace(BATCH, status=BatchStatus.PENDING)
    assert verdict(Finding.NOT_FOUND, pending).action is Action.START
    assert verdict(Finding.FAILED, pending).action is Action.REVIVE


@pytest.mark.parametrize("finding", [*LOST, Finding.TERMINATED])
def test_a_batch_that_is_being_cancelled_gets_the_run_that_closes_it(finding: Finding) -> None:
    for revivals in (0, 9):
        cancelling = replace(BATCH, status=BatchStatus.CANCELLING, revivals=revivals)
        assert verdict(finding, cancelling).action is Action.START


@pytest.mark.parametrize("finding", LOST)
def test_a_start_that_is_owed_is_made_up_for_without_a_new_epoch(finding: Finding) -> None:
    for revivals in (1, MOST_REVIVALS):
        assert verdict(finding, replace(BATCH, owes_start=True, revivals=revivals)).action is Action.START


def test_what_holds_a_batch_up_is_named() -> None:
    assert verdict(Finding.RUNNING).cause is None
    assert verdict(Finding.RUNNING, task_attempt=3).cause == "workflow_task_fails"
    assert verdict(Finding.RUNNING, pollers=0).cause == "nobody_polls"
    assert verdict(Finding.RUNNING, replace(BATCH, workers=0)).cause == "no_worker_has_the_handler"
    assert verdict(Finding.RUNNING, replace(BATCH, workers=0, status=BatchStatus.PAUSED)).cause is None
    assert verdict(Finding.PAUSED).cause == "workflow_paused"
    assert verdict(Finding.OTHER_BATCH).cause == "run_of_other_batch"
    assert verdict(Finding.OTHER_DATABASE).cause == "run_of_other_database"
