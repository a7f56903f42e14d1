"""`why` names the reason that is there, for every one that can be made, on real servers."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout import BatchHandle
from fanout.client import Reason, Why
from fanout.client.purging import Purging
from fanout.errors import UnknownItem
from fanout.states import ItemStatus
from tests.ledger import calls, closed, start_worker
from tests.support import Deployment, eventually
from tests.sweeping.support import UNSWEPT, delete_run, fail_task, terminate
from tests.test_cli import bare

WHY = ["reason", "detail", "next_at", "fix", "duplicates", "recent_duplicates"]
HOSTILE = "\x9b31mred \u202etxt\u2066 [bold]"


async def reason(batch: BatchHandle, item: str | None = None) -> str:
    return (await batch.why(item)).reason.value


async def becomes(batch: BatchHandle, wanted: Reason, item: str | None = None) -> Why:
    """The answer, once its reason is that one."""

    async def asked() -> Why | None:
        found = await batch.why(item)
        return found if found.reason is wanted else None

    found = await eventually(asked)
    assert found is not None
    return found


async def processing(fanout: Deployment, batch: BatchHandle, count: int = 1) -> None:
    async def held() -> bool:
        return (await fanout.statuses(batch.batch_id)).get("processing", 0) >= count

    await eventually(held)


@pytest.mark.steady
async def test_a_batch_without_a_worker_says_which_is_missing(fanout: Deployment) -> None:
    batch = await fanout.client.submit("nobody.knows", [1], key="k", allow_unknown=True)
    alone = await batch.why()
    assert (alone.reason, alone.detail) == ("nobody_polls", "no worker is alive")
    assert "worker.py" in str(alone.fix)
    await fanout.start_worker(**UNSWEPT)
    found = await becomes(batch, Reason.NO_WORKER_HAS_THE_HANDLER)
    assert "test.echo" in found.detail
    assert await reason(batch, "0") == "no_worker_has_the_handler"
    # As if the last worker that had it had ended since the batch was read.
    row = replace(await batch.read(), workers=1)
    assert (await fanout.client.inquiry.why_batch(row)).reason.value == "no_worker_has_the_handler"
    with pytest.raises(UnknownItem):
        await batch.why("nope")
    said = fanout.run("why", "nobody.knows/k", "--json")
    assert (said.returncode, list(json.loads(said.stdout))) == (0, WHY)


async def test_what_somebody_decided_comes_first(fanout: Deployment) -> None:
    """A person, a budget, a deadline, a cancel: each is named whether a worker is there or not."""
    submit = fanout.client.submit
    paused = await submit("nobody.knows", [1], allow_unknown=True)
    await paused.pause()
    assert (await reason(paused), await reason(paused, "0")) == ("paused", "paused")
    assert (await paused.why()).fix == f"python starter.py resume {paused.batch_id}"
    late = await submit("nobody.knows", [1], allow_unknown=True, deadline=timedelta(seconds=1))
    await becomes(late, Reason.DEADLINE_PASSED)
    await paused.cancel("no use\x1b[2J")
    cancelling = await paused.why()
    assert (cancelling.reason, "no use" in cancelling.detail) == ("cancelling", True)
    assert "start a worker" in str(cancelling.fix)

    await fanout.start_worker()
    await closed(paused)
    await closed(late)
    assert (await reason(paused), await reason(paused, "0")) == ("closed", "settled")
    assert "--status cancelled" in str((await late.why()).fix)
    # More items than a worker claims at once: a batch of which all have settled is not held up by its budget.
    strict = await submit("test.fail", range(200), max_failures=0)
    budget = await becomes(strict, Reason.FAILURE_BUDGET)
    assert "resume" in str(budget.fix)
    await strict.cancel()
    await closed(strict)
    item = await strict.why("0")
    assert (item.reason, item.detail.endswith(": hopeless")) == ("settled", True)
    await Purging(fanout.client.store, timedelta(0)).purge_old()
    assert (await reason(strict), await reason(strict, "0")) == ("purged", "purged")


async def test_an_open_breaker_tells_when_it_tries_again(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "4", handlers="tests.handlers.service")
    batch = await fanout.client.submit("service.call", [""] * 40)
    found = await becomes(batch, Reason.BREAKER_OPEN)
    assert "PermissionError" in found.detail
    assert found.next_at is not None
    # Every key of an item asks in vain while the batch stands still.
    assert await reason(batch, "39") in ("breaker_open", "running", "settled")


HOUR = {"how": "duration", "after": 3600, "seconds": 0}


@pytest.mark.steady
async def test_running_items_full_slots_and_waits_are_told_apart(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "2", handlers="tests.handlers.timed")
    busy = await fanout.client.submit("timed.loop", range(4), range_size=1)
    await processing(fanout, busy, 2)
    running = await becomes(busy, Reason.RUNNING)
    [worker] = await fanout.client.workers()
    assert running.detail.startswith(f"2 items run on {worker.facts.identity}")
    states = {row.status: row.item_key async for row in busy.results()}
    first = await busy.why(states[ItemStatus.PROCESSING])
    assert (first.reason, worker.facts.identity in first.detail, "attempt 1" in first.detail) == ("running", True, True)
    assert await reason(busy, states[ItemStatus.PENDING]) == "window_full"
    other = await fanout.client.submit("timed.throttled", [HOUR], key=HOSTILE.replace("\x9b", ""))
    full = await becomes(other, Reason.WINDOW_FULL)
    assert "all 2 slots" in full.detail
    await busy.cancel()
    waits = await becomes(other, Reason.WAITS_UNTIL)
    assert waits.next_at is not None
    assert timedelta(minutes=55) < waits.next_at - datetime.now(UTC) < timedelta(minutes=75)
    assert "RetryLater" in (await other.why("0")).detail
    assert (await other.why("0")).next_at == waits.next_at


async def test_a_claim_of_a_silent_worker_is_told_from_a_living_ones(fanout: Deployment) -> None:
    worker = await start_worker(fanout, "--concurrency", "1", handlers="tests.handlers.cases")
    batch = await fanout.client.submit("case.obeys", [1])
    await processing(fanout, batch)
    worker.kill()
    assert (await becomes(batch, Reason.NOBODY_POLLS, "0")).detail.startswith("it is processing, and of its batch")
    # As if another worker lived that has not come to the claim yet.
    await fanout.pool.execute(
        "insert into fanout.workers (id, identity, handlers, build, concurrency, seen_at) "
        "select gen_random_uuid(), $1, handlers, build, concurrency, now() + interval '1 hour' from fanout.workers",
        HOSTILE,
    )
    for item in (None, "0"):
        assert await reason(batch, item) == "worker_silent"


async def test_a_run_that_is_gone_is_the_sweepers_and_one_that_hangs_is_named(fanout: Deployment) -> None:
    """The worker that knows the handler works for another Temporal, as it were: here are only its rows."""
    await fanout.pool.execute(
        "insert into fanout.workers (id, identity, handlers, build, concurrency, seen_at) "
        """values (gen_random_uuid(), 'rows only', '{"test.echo": {}}', 'x', 1, now() + interval '1 hour')"""
    )
    batch = await fanout.client.submit("test.echo", [1])
    assert await reason(batch) == "nobody_polls"
    await delete_run(fanout, batch)
    missing = await batch.why()
    assert (missing.reason, missing.fix) == ("workflow_missing", "python starter.py sweep --twice")
    assert "the sweeper starts it" in missing.detail
    await fanout.client.store.open_batch(batch.batch_id, (await batch.read()).workflow_id)
    assert "in a new epoch" in (await batch.why()).detail
    await batch.start()
    await terminate(fanout, batch, "not this one")
    assert "cancels the batch" in (await batch.why()).detail

    hangs = await fanout.client.submit("test.echo", [2])
    for _ in range(3):
        await fail_task(fanout)
    failing = await becomes(hangs, Reason.WORKFLOW_TASK_FAILS)
    assert failing.detail.endswith(": broken")
    assert "restart the workers" in str(failing.fix)


def test_a_server_that_is_away_is_a_reason_too(tmp_path: Any) -> None:
    dead = {"FANOUT_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x", "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    done = bare(tmp_path, "why", "test.echo/k", "--json", **dead)
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (3, "database_unreachable")
    assert "127.0.0.1:1" in json.loads(done.stdout)["detail"]
    assert "secret" not in done.stdout + done.stderr


async def test_a_temporal_that_is_away_is_named_and_hostile_words_move_no_cursor(fanout: Deployment) -> None:
    away = fanout.run("why", "test.echo/k", "--json", "--address", "127.0.0.1:1")
    assert (away.returncode, json.loads(away.stdout)["reason"]) == (3, "temporal_unreachable")
    batch = await fanout.client.submit("nobody.knows", [1], key="k", allow_unknown=True)
    await batch.cancel("bad \x1b[2J \x9b31m \u202e words")
    shown = fanout.run("why", "nobody.knows/k").stdout
    assert "words" in shown
    assert not [character for character in shown if not character.isprintable() and character != "\n"]
    assert calls(fanout, 0) == []
