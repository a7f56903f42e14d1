"""Closed batches give their rows back; what their keys promised stays true, and nothing that is open is touched."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fanout import BatchHandle
from fanout.client.purging import Purging
from fanout.errors import BatchOpen, BatchPurged, KeyBusy, KeyConflict
from fanout.http import app
from fanout.store import purges
from tests.http.support import caller, problem
from tests.ledger import closed
from tests.support import Deployment

DAY = timedelta(days=1)
MONTH = timedelta(days=30)
TABLES = ("results", "items", "progress", "events", "event_heads", "event_counts", "duplicates", "sweeps", "batches")
REMEMBERED = {"events": 1, "event_heads": 1}
"""Of a purged batch: its `closed`."""


def purging(fanout: Deployment, retention: timedelta = MONTH) -> Purging:
    return Purging(fanout.client.store, retention)


async def submit(
    fanout: Deployment, *items: Any, key: str = "k", handler: str = "test.echo", **more: Any
) -> BatchHandle:
    return await fanout.client.submit(handler, items, key=key, **more)


async def age(fanout: Deployment, span: timedelta) -> None:
    """As if all that is closed had been closed, and purged, that much earlier."""
    await fanout.pool.execute("update fanout.batches set closed_at = closed_at - $1::interval", span)
    await fanout.pool.execute(
        "update fanout.purged set keep_until = keep_until - $1::interval, closed_at = closed_at - $1::interval", span
    )


async def left(fanout: Deployment, batch_id: UUID) -> dict[str, int]:
    """How many rows of the batch each table still has."""
    found = {}
    for table in TABLES:
        column = "id" if table == "batches" else "batch_id"
        found[table] = await fanout.pool.fetchval(f"select count(*) from fanout.{table} where {column} = $1", batch_id)
    return {table: count for table, count in found.items() if count}


async def test_old_batches_go_and_their_keys_and_statuses_are_remembered(fanout: Deployment) -> None:
    await fanout.start_worker()
    old = await submit(fanout, 1, 2, 3)
    failed = await submit(fanout, 1, key="f", handler="test.fail")
    before = await closed(old)
    await closed(failed)
    await submit(fanout, 1, 2, 3)
    await age(fanout, 40 * DAY)
    young = await submit(fanout, 9, key="young")
    await closed(young)
    waits = await fanout.client.submit("nobody.knows", [1], allow_unknown=True)

    [answer] = [json.loads(fanout.run("purge", "--json").stdout)]
    assert answer["purged"] == 2
    assert answer["rows"] >= 2 * 4
    for batch in (old, failed):
        assert await left(fanout, batch.batch_id) == REMEMBERED
    assert (await left(fanout, young.batch_id)).keys() >= {"results", "items", "batches"}
    assert (await left(fanout, waits.batch_id)).keys() >= {"results", "items", "batches"}

    shown = (await (await fanout.client.get("test.echo/k")).progress()).model_dump()
    assert shown["purged_at"] is not None
    assert (shown["status"], shown["completed"], shown["total"]) == ("completed", 3, 3)
    assert shown["progress_at"] == before.progress_at
    assert "its items and results are gone" in fanout.run("status", "test.echo/k").stdout
    again = await submit(fanout, 1, 2, 3)
    assert (again.outcome, again.batch_id) == ("already_done", old.batch_id)
    assert (await again.wait()).completed == 3
    with pytest.raises(KeyConflict, match="fingerprint"):
        await submit(fanout, 1, 2, 4)
    with pytest.raises(KeyConflict, match="4 items, and in the batch 3"):
        await submit(fanout, 1, 2, 3, 4)
    for call in (again.item("0"), again.retry(), again.results().__anext__()):
        with pytest.raises(BatchPurged):
            await call
    assert fanout.run("verify", "test.echo/k").returncode == 2
    async with caller(app(fanout.client)) as api:
        path = f"/batches/{old.batch_id}"
        assert (await api.get(path)).json()["purged_at"] is not None
        for asked in ("items", "items?prefix=0", "items?key=0", "failures", "timeline"):
            problem(await api.get(f"{path}/{asked}"), 422, "batch_purged")
    fresh = await submit(fanout, 7, dedup="open")
    assert (fresh.outcome, (await closed(fresh)).completed) == ("started", 1)
    for batch in (young, waits, fresh):
        assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_who_waits_for_a_purged_batch_learns_how_it_ended(fanout: Deployment) -> None:
    await fanout.start_worker()
    done, failed = await submit(fanout, 1), await submit(fanout, 1, key="f", handler="test.fail")
    for batch in (done, failed):
        last = [message async for message in batch.events()][-1]
        await purging(fanout).purge_one(batch.batch_id)
        heard = [message async for message in batch.events()]
        assert [message.kind for message in heard] == ["snapshot", "closed"]
        assert heard[0].status is not None
        assert heard[0].status.purged_at is not None
        assert (heard[1].id, heard[1].data) == (last.id, last.data)
        assert [message async for message in batch.events(last.id)] == []
        assert [message.kind async for message in batch.events(1)] == ["reset", "snapshot", "closed"]
    watched = fanout.run("watch", "test.echo/k", "--json")
    assert (watched.returncode, json.loads(watched.stdout)["status"]) == (0, "completed")
    waited = fanout.run("submit", "test.fail", "--items", "-", "--key", "f", "--wait", "--json", text="1\n")
    assert (waited.returncode, json.loads(waited.stdout.splitlines()[-1])["failed"]) == (1, 1)


async def test_a_purge_keeps_the_count_of_who_joined(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await submit(fanout, 1, dedup="open")
    await closed(batch)
    for origin in ("http", "schedule"):
        await submit(fanout, 1, origin=origin)

    async def ledger() -> tuple[int, str | None, int]:
        status = await batch.progress()
        return status.duplicates, status.duplicate_origin, len(await batch.duplicates())

    assert await ledger() == (2, "schedule", 2)
    await purging(fanout).purge_one(batch.batch_id)
    assert await ledger() == (2, "schedule", 0)
    await submit(fanout, 1, origin="cli")
    await purging(fanout).purge_old()
    assert await ledger() == (3, "cli", 1)
    assert (await purging(fanout, timedelta(0)).purge_old()).rows == 1
    assert await ledger() == (3, "cli", 0)
    await submit(fanout, 1)
    await age(fanout, 40 * DAY)
    await purging(fanout).purge_old()
    assert await left(fanout, batch.batch_id) == {}
    assert await remembered(fanout, "purged") == set()


async def test_an_open_batch_is_refused_by_name(fanout: Deployment) -> None:
    batch = await fanout.client.submit("nobody.knows", [1], key="k", allow_unknown=True)
    with pytest.raises(BatchOpen, match=str(batch.batch_id)):
        await purging(fanout).purge_one(batch.batch_id)
    refused = fanout.run("purge", "nobody.knows/k", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "batch_open" in refused.stderr
    assert (await purging(fanout, timedelta(0)).purge_old()).purged == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


POLICIES: list[tuple[Any, str, bool]] = [
    ("forever", "test.echo", True),
    ("success", "test.echo", True),
    ("success", "test.fail", False),
    ("open", "test.echo", False),
    (60 * DAY, "test.echo", False),
]


async def remembered(fanout: Deployment, table: str) -> set[str]:
    return {row["key"] for row in await fanout.pool.fetch(f"select key from fanout.{table}")}


async def test_a_key_is_remembered_for_as_long_as_its_policy_says(fanout: Deployment) -> None:
    await fanout.start_worker()
    for number, (policy, handler, _) in enumerate(POLICIES):
        await closed(await submit(fanout, 1, key=str(number), handler=handler, dedup=policy))
    assert (await purging(fanout, timedelta(0)).purge_old()).purged == len(POLICIES)
    everything = {str(number) for number in range(len(POLICIES))}
    for days, expected in ((0, everything), (40, {"0", "1", "4"}), (61, {"0", "1"})):
        await age(fanout, days * DAY)
        await purging(fanout).purge_old()
        assert await remembered(fanout, "purged") == expected
        assert await remembered(fanout, "keys") == expected


async def test_a_purge_that_dies_half_way_is_finished_by_the_next(fanout: Deployment) -> None:
    """In whatever step it stopped, and with two of them at work."""
    await fanout.start_worker()
    batch = await submit(fanout, *range(5_000))
    await closed(batch)
    store = fanout.client.store.purges
    assert await store.bury_batch(batch.batch_id, timedelta(0), MONTH)
    assert await store.delete_rows(batch.batch_id) == (2 * purges.STEP_ITEMS, True)
    assert (await left(fanout, batch.batch_id))["items"] == 3_000
    assert (await submit(fanout, *range(5_000))).outcome == "already_done"
    pair = [purging(fanout), purging(fanout)]
    await asyncio.gather(*(each.purge_old() for each in pair))
    assert await left(fanout, batch.batch_id) == REMEMBERED
    assert sum(each.report.rows for each in pair) >= 6_000
    assert (await purging(fanout).purge_one(batch.batch_id)).purged == 0


async def test_a_purge_waits_for_nobody_who_decides_about_the_key(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await submit(fanout, 1)
    await closed(batch)
    async with fanout.pool.transaction() as connection:
        await connection.execute("select from fanout.keys for update")
        assert (await purging(fanout, timedelta(0)).purge_old()).purged == 0
        with pytest.raises(KeyBusy, match=r"another submit, retry or purge of test\.echo/k is still at work"):
            await purging(fanout).purge_one(batch.batch_id)
    assert (await purging(fanout, timedelta(0)).purge_old()).purged == 1


async def test_verify_finds_what_is_broken_in_the_newer_columns(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await submit(fanout, 1, on_close="test.noop")
    await closed(batch)
    hook = await fanout.client.get(f"test.noop/{batch.batch_id}/1/closed")
    await closed(hook)
    await purging(fanout).purge_one(hook.batch_id)
    assert await fanout.client.store.read_violations(batch.batch_id) == []

    async def codes(change: str, undo: str) -> set[str]:
        await fanout.pool.execute(f"update fanout.batches set {change} where id = $1", batch.batch_id)
        found = {violation.code for violation in await fanout.client.store.read_violations(batch.batch_id)}
        await fanout.pool.execute(f"update fanout.batches set {undo} where id = $1", batch.batch_id)
        return found

    breaker = "breaker_type = 'X', breaker_until = now()"
    assert await codes(breaker, "breaker_type = null, breaker_until = null") == {"breaker_in_closed"}
    assert await codes("failures_forgiven = 1", "failures_forgiven = 0") == {"forgiven_exceed_failed"}
    given_up = await codes("status = 'failed'", "status = 'completed'")
    assert {"ends_as_differs", "failed_without_reason"} <= given_up
    early = "ends_as = 'failed', reason = 'deadline', deadline_at = now(), cancelling_at = now() - interval '1 minute'"
    plain = "ends_as = 'cancelled', reason = null, deadline_at = null, cancelling_at = null"
    assert await codes(early, plain) == {"deadline_not_reached"}
    assert await codes("ends_as = 'failed', reason = 'failure_budget'", plain) == {"budget_without_limit"}
    await fanout.pool.execute("delete from fanout.purged")
    assert [each.code for each in await fanout.client.store.read_violations(batch.batch_id)] == ["hook_not_once"]
