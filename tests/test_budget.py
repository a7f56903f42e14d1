"""A budget of failures: when it trips, what it stops, and how a person goes on."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from fanout import BatchHandle
from fanout.client.limits import Limits
from fanout.errors import InvalidRequest, UnknownHandler
from fanout.store.audit import count_recorded_twice, install_audit
from tests.ledger import closed, events, start_worker
from tests.support import Deployment, eventually

HANDLERS = "tests.handlers.closing"


async def paused(batch: BatchHandle, failed: int = 0) -> bool:
    """Paused, with nothing running any more."""
    status = await batch.progress()
    return status.status == "paused" and status.processing == 0 and status.failed > failed


async def failure_type(fanout: Deployment, workflow_id: str) -> str | None:
    """The type of the error that the batch's workflow ended with."""
    with pytest.raises(WorkflowFailureError) as raised:
        await asyncio.wait_for(fanout.temporal.get_workflow_handle(workflow_id).result(), 60)
    assert isinstance(raised.value.cause, ApplicationError)
    return raised.value.cause.type


async def test_too_many_failures_pause_a_batch_and_a_resume_starts_the_budget_anew(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "10", handlers=HANDLERS)
    batch = await fanout.client.submit("closing.work", ["bad"] * 1_000, max_failures=20)
    await eventually(lambda: paused(batch))
    first = await batch.progress()
    # The limit, and what ran or was being written at that moment.
    assert (first.reason, first.max_failures, 20 < first.failed <= 120) == ("failure_budget", 20, True)
    started = len(list(fanout.folder.glob("start-*")))
    assert started <= 130
    await batch.resume()
    await eventually(lambda: paused(batch, first.failed))
    second = await batch.progress()
    assert first.failed + 20 < second.failed <= first.failed + 120
    tripped = await events(batch, fanout, "budget_tripped")
    assert [(event["limit"], event["action"]) for event in tripped] == [(20, "pause")] * 2
    assert all(20 < event["failed"] <= 120 for event in tripped)
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    await batch.cancel()
    assert (await closed(batch)).status == "cancelled"


async def test_a_percentage_counts_only_once_twenty_items_are_settled(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "1", handlers=HANDLERS)
    items = ["bad"] * 15 + ["good"] * 10 + ["bad"] + ["good"] * 74
    batch = await fanout.client.submit("closing.work", items, max_failures="10%", range_size=100)
    await eventually(lambda: paused(batch))
    status = await batch.progress()
    assert (status.failed, status.max_failures, 26 <= status.settled < 60) == (16, "10%", True)
    assert [event["limit"] for event in await events(batch, fanout, "budget_tripped")] == [10]
    await batch.resume()
    status = await closed(batch)
    assert (status.status, status.completed, status.failed, status.reason) == ("completed_with_failures", 84, 16, None)
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_batch_that_may_fail_ends_as_failed_and_what_is_left_is_cancelled(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "10", handlers=HANDLERS)
    items = ["long"] * 3 + ["mended"] * 500
    batch = await fanout.client.submit("closing.work", items, max_failures=5, on_budget="fail")
    status = await closed(batch, 25)
    assert (status.status, status.reason, status.completed) == ("failed", "failure_budget", 0)
    assert 5 < status.failed <= 105
    assert status.cancelled == 503 - status.failed
    assert await failure_type(fanout, status.workflow_id) == "failure_budget"
    assert len(await events(batch, fanout, "budget_tripped")) == 1
    # Its failed items first; the cancelled ones, which were never tried, are another question.
    assert (await batch.retry()).reopened == status.failed
    again = await closed(batch)
    assert (again.status, again.completed, again.failed, again.epoch) == ("cancelled", status.failed, 0, 2)
    assert (await batch.retry(items=["5", "502"], status="cancelled")).reopened in (1, 2)
    assert (await closed(batch)).status == "cancelled"
    assert await fanout.client.store.read_violations(batch.batch_id) == []
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0


async def test_a_budget_that_is_overdrawn_by_the_last_item_fails_the_batch_or_just_closes_it(
    fanout: Deployment,
) -> None:
    """Where nothing is left to do there is nothing to pause."""
    await start_worker(fanout, "--concurrency", "1", handlers=HANDLERS)
    ends = {}
    for action in ("pause", "fail"):
        items = ["good", "good", "bad"]
        batch = await fanout.client.submit("closing.work", items, max_failures=0, on_budget=action, range_size=3)
        status = await closed(batch)
        ends[action] = (status.status, status.reason, status.completed, status.failed)
        assert await fanout.client.store.read_violations(batch.batch_id) == []
    assert ends == {
        "pause": ("completed_with_failures", None, 2, 1),
        "fail": ("failed", "failure_budget", 2, 1),
    }


async def test_a_batch_that_its_budget_paused_closes_when_the_last_item_that_ran_has_ended(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "4", handlers=HANDLERS)
    # In one range: one claim takes them all.
    items = ["bad", "slow", "slow", "slow"]
    batch = await fanout.client.submit("closing.work", items, max_failures=0, range_size=4)
    status = await closed(batch, 30)
    [tripped] = await events(batch, fanout, "budget_tripped")
    assert tripped["action"] == "pause"
    assert (status.status, status.completed, status.failed) == ("completed_with_failures", 3, 1)
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_budget_wakes_a_batch_whose_other_items_sleep_for_long(fanout: Deployment) -> None:
    await start_worker(fanout)
    items = [{"after": 3_000}] * 5 + [{"fail": 1}]
    batch = await fanout.client.submit("case.sleeps_or_fails", items, max_failures=0, on_budget="fail")
    status = await closed(batch, 20)
    assert (status.status, status.failed, status.cancelled) == ("failed", 1, 5)


async def test_a_retry_starts_the_budget_anew(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "1", handlers=HANDLERS)
    batch = await fanout.client.submit(
        "closing.work", ["mended"] * 6 + ["good"] * 30, max_failures=2, on_budget="pause", range_size=36
    )
    await eventually(lambda: paused(batch))
    failed = (await batch.progress()).failed
    retried = await batch.retry()
    assert (retried.reopened, retried.epoch) == (failed, 2)
    status = await batch.progress()
    assert (status.status, status.failed, status.reason) == ("paused", 0, None)
    await batch.resume()
    status = await closed(batch)
    assert (status.status, status.completed) == ("completed", 36)
    assert len(await events(batch, fanout, "budget_tripped")) == 1
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_batch_that_is_joined_keeps_its_own_budget(fanout: Deployment) -> None:
    for limit in (3, 7):
        batch = await fanout.client.submit("closing.work", ["a"], key="one", max_failures=limit, allow_unknown=True)
        assert (await batch.progress()).max_failures == 3
    assert batch.outcome == "joined"


@pytest.mark.parametrize(
    "options",
    [
        *({"max_failures": value} for value in (-1, True, 1.5, "5", "0%", "101%", "5 %", "-1%", "x" * 500, 2**31)),
        {"on_budget": "pause"},
        {"max_failures": 1, "on_budget": "stop"},
        *({"deadline": value} for value in (60, timedelta(0), timedelta(seconds=-1), timedelta(days=3651))),
        *({"on_close": value} for value in ("No Name", "", 5)),
    ],
    ids=str,
)
async def test_what_cannot_be_is_refused_by_name_and_nothing_is_stored(
    fanout: Deployment, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequest, match=list(options)[-1]) as refused:
        await fanout.client.submit("closing.work", [1], allow_unknown=True, **options)  # type: ignore[arg-type]
    assert len(str(refused.value)) < 300
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


async def test_an_unknown_handler_to_close_with_is_refused(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=HANDLERS)
    with pytest.raises(UnknownHandler, match=r"closing\.nobody"):
        await fanout.client.submit("closing.work", ["good"], on_close="closing.nobody")


@pytest.mark.parametrize(
    ("given", "total", "limit", "least"),
    [("5%", 500, 25, 20), ("5%", 10, 0, 10), ("0.1%", 1_000_000, 1_000, 20), ("33.3%", 10, 3, 10), ("100%", 7, 7, 7)],
)
def test_a_percentage_is_of_the_total_and_rounded_down(given: str, total: int, limit: int, least: int) -> None:
    expected = {"max_failures": given, "on_budget": "pause", "failure_limit": limit, "failure_least": least}
    assert Limits(given).stored(total) == expected
