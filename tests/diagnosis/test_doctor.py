"""`doctor` finds what was made wrong, nothing else, and nothing where all is well."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from fanout.builds import build
from fanout.client.row_checks import of_settings, skew
from fanout.client.run_checks import of_server_version
from fanout.client.schedule_checks import ScheduleChecks, is_late
from fanout.client.sweep_schedule import SweepSchedule
from fanout.devstack import Stack
from fanout.devstack.postgres import CLUSTER_NAME
from fanout.store import check_schema
from tests.diagnosis.support import add_crew, add_schedule, examine, listed
from tests.ledger import closed, start_worker
from tests.support import Deployment, create_database, eventually
from tests.sweeping.support import UNSWEPT, delete_run, fail_task, quiet, run_of, started_alone

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def schedule(fanout: Deployment) -> SweepSchedule:
    settings = fanout.settings.with_values({"sweep_every_seconds": 3_600})
    return SweepSchedule(fanout.temporal, settings, await check_schema(fanout.pool))


@pytest.mark.steady
async def test_nothing_is_found_where_all_is_well(fanout: Deployment, stack: Stack) -> None:
    """With nothing there at all, and on a deployment that works, whose batches ended in every way."""
    assert await examine(fanout) == {}
    await fanout.start_worker()
    first = await fanout.client.submit("test.echo", range(30), on_close="test.noop")
    await closed(first)
    await closed(await fanout.client.submit("test.fail", [1, 2]))
    cancelled = await fanout.client.submit("test.sleep", [{"seconds": 60}])
    await cancelled.cancel()
    await closed(cancelled)
    running = await fanout.client.submit("test.sleep", [{"seconds": 60}] * 500)

    async def ticking() -> bool:
        return await (await schedule(fanout)).read() is not None

    await eventually(ticking)
    assert await examine(fanout) == {}
    fanout.environment["FANOUT_HOME"] = str(stack.home)
    done = fanout.run("doctor", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"findings": []})
    await running.cancel()


async def test_seven_schedules_for_one_thing_are_named_with_the_commands_that_delete_six(fanout: Deployment) -> None:
    nightly = {"handler": "test.echo", "items": [1, {"b": 1, "a": 2}]}
    ids = [f"nightly {number}" for number in range(7)]
    for number, schedule_id in enumerate(ids):
        await add_schedule(fanout, schedule_id, {"title": f"deploy {number}", **nightly})
    await add_schedule(fanout, "paused", nightly, paused=True)
    await add_schedule(fanout, "other items", {"handler": "test.echo", "items": [2]})
    await add_schedule(fanout, "other handler", {"handler": "test.noop", "items": [1, {"a": 2, "b": 1}]})
    await listed(fanout, 10)
    found = (await examine(fanout))["duplicate_schedules"]
    assert (found.severity, found.detail.startswith("7 schedules")) == ("warning", True)
    assert found.fix.count("temporal schedule delete") == 6
    assert "--schedule-id 'nightly 6'" in found.fix
    assert "nightly 0" not in found.fix
    # Deleted while they are looked at.
    checks = ScheduleChecks(fanout.client.store, fanout.temporal, fanout.settings, fanout.client.starter.database_id)
    deleting = (fanout.temporal.get_schedule_handle(each).delete() for each in ids[2:])
    looking = asyncio.create_task(checks.check_schedules())
    await asyncio.gather(*deleting)
    assert {each.code for each in await looking} == {"duplicate_schedules"}


async def test_the_sweepers_schedule_is_looked_at(fanout: Deployment) -> None:
    await add_crew(fanout, build())
    assert set(await examine(fanout)) == {"sweeper_missing"}
    made = await schedule(fanout)
    await made.assert_it()
    assert await examine(fanout) == {}
    handle = fanout.temporal.get_schedule_handle("fanout-sweeper")
    await handle.pause(note="until \x1b[2Jmonday")
    paused = (await examine(fanout))["sweeper_paused"]
    assert "until" in paused.detail
    assert "toggle --unpause" in paused.fix
    shown = fanout.run("doctor")
    assert (shown.returncode, "fix: temporal schedule toggle" in shown.stdout, "\x1b" in shown.stdout) == (
        1,
        True,
        False,
    )
    other = SweepSchedule(fanout.temporal, fanout.settings, uuid4())
    await other.assert_it()
    assert (await examine(fanout))["sweeper_of_other_database"].severity == "error"


def test_a_pass_is_late_after_three_intervals_and_a_margin() -> None:
    for every, allowed in ((60, 210), (1, 33)):
        assert not is_late(timedelta(seconds=allowed), timedelta(seconds=every))
        assert is_late(timedelta(seconds=allowed + 1), timedelta(seconds=every))


@pytest.mark.chaos
async def test_passes_that_are_not_made_are_missed(fanout: Deployment) -> None:
    """The workers seem to have been there for a day, and make none."""
    await add_crew(fanout, build())
    hasty = fanout.settings.with_values({"sweep_every_seconds": 1})
    await SweepSchedule(fanout.temporal, hasty, await check_schema(fanout.pool)).assert_it()
    assert "sweeper_late" not in await examine(fanout)

    async def late() -> bool:
        return "sweeper_late" in await examine(fanout)

    await eventually(late, 90)


async def test_batches_that_stand_still_are_found_by_both_witnesses(fanout: Deployment) -> None:
    waits = await fanout.client.submit("nobody.knows", [1], allow_unknown=True)
    await quiet(fanout)
    alone = (await examine(fanout))["nobody_polls"]
    assert (alone.severity, "nobody.knows" in alone.detail) == ("warning", True)
    await add_crew(fanout, build())
    found = await examine(fanout)
    assert {"no_worker_has_the_handler", "sweeper_missing"} == found.keys()
    await delete_run(fanout, waits)
    missing = (await examine(fanout))["workflow_missing"]
    assert str(waits.batch_id) in missing.detail
    assert "sweep --twice" in missing.fix

    hangs = await started_alone(fanout)
    for _ in range(3):
        await fail_task(fanout)

    async def failing() -> bool:
        return str(hangs.batch_id) in str((await examine(fanout)).get("workflow_task_fails"))

    await eventually(failing)
    # Of a server that is not known to be the dev stack's it cannot be told whether it is fair.
    assert {"fairness_unknown"} == {code for code in await examine(fanout, own_stack=False) if "fairness" in code}
    assert [finding.code for finding in of_server_version("1.28.3")] == ["fairness_off"]


async def test_a_run_without_an_open_batch_is_found(fanout: Deployment) -> None:
    batch = await fanout.client.submit("test.echo", [1], key="it's", allow_unknown=True)
    workflow_id = (await run_of(batch)).workflow_id
    assert "run_without_batch" not in await examine(fanout)
    await fanout.pool.execute("delete from fanout.batches")

    async def found() -> bool:
        seen = (await examine(fanout)).get("run_without_batch")
        return seen is not None and workflow_id in seen.detail and """'fanout/test.echo/it'"'"'s'""" in seen.fix

    await eventually(found)


async def test_claims_breakers_pauses_and_old_workers_are_found(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "2", handlers="tests.handlers.service")
    broken = await fanout.client.submit("service.call", [""] * 20)

    async def opened() -> bool:
        return "breaker_open" in await examine(fanout)

    await eventually(opened)
    await broken.cancel()
    await closed(broken)
    fanout.workers[0].kill()

    [claimed, paused] = [await fanout.client.submit("test.echo", [1], allow_unknown=True) for _ in range(2)]
    await fanout.pool.execute(
        "update fanout.results set status = 'processing', claim_id = gen_random_uuid(), worker_id = gen_random_uuid(), "
        "claimed_at = now() - interval '1 hour' where batch_id = $1",
        claimed.batch_id,
    )
    await paused.pause()
    await fanout.pool.execute("update fanout.events set at = at - interval '3 hours' where kind = 'paused'")
    await add_crew(fanout, "0.0.1", "old \x1b[31mone")
    found = await examine(fanout, sweep_every_seconds=86_400)
    assert str(claimed.batch_id) in found["stale_claims"].detail
    assert found["paused_for_long"].severity == "info"
    assert f"resume {paused.batch_id}" in found["paused_for_long"].fix
    assert "(0.0.1)" in found["build_differs"].detail
    await fanout.pool.execute("update fanout.batches set reason = 'failure_budget' where id = $1", paused.batch_id)
    assert (await examine(fanout))["paused_for_long"].severity == "warning"


async def test_many_new_batches_at_one_moment_are_a_surge(fanout: Deployment) -> None:
    await add_crew(fanout, build())
    await (await schedule(fanout)).assert_it()

    async def surge(times: int, *, alike: bool, handler: str) -> str | None:
        for number in range(times):
            await fanout.client.submit(handler, [0 if alike else number])
        await fanout.pool.execute(
            "update fanout.batches set created_at = date_trunc('minute', now()) where handler = $1", handler
        )
        found = (await examine(fanout)).get("surge")
        return None if found is None else found.detail

    assert await surge(6, alike=False, handler="case.type") is None
    told = await surge(7, alike=True, handler="test.echo")
    assert told is not None
    assert told.startswith("7 batches of test.echo were made within a second")
    # Many different ones at one time, and at another fewer with the same items: told are numbers of one second.
    await fanout.pool.execute(
        """insert into fanout.batches (id, handler, key, workflow_id, fingerprint, total, created_at)
        select gen_random_uuid(), 'a.crowd', n::text, n::text,
               sha256(case when n <= 25 then n else 0 end::text::bytea), 1,
               now() - case when n <= 25 then interval '30 minutes' else interval '10 minutes' end
        from generate_series(1, 31) n"""
    )
    crowd, _ = await fanout.client.store.health.list_surges(HOUR, 20, 5)
    assert (crowd.handler, crowd.together, crowd.alike) == ("a.crowd", 6, 6)
    assert timedelta(minutes=9) < datetime.now(UTC) - crowd.at < timedelta(minutes=12)


async def test_clocks_that_differ_are_found(fanout: Deployment) -> None:
    assert skew("a", NOW, NOW - HOUR, NOW, "b") == []
    assert skew("a", NOW + timedelta(seconds=1.9), NOW, NOW, "b") == []
    assert "at least 3.0 s ahead of that of b" in skew("a", NOW + timedelta(seconds=3), NOW - HOUR, NOW, "b")[0].detail
    assert "at least 5.0 s behind" in skew("a", NOW - timedelta(seconds=5), NOW, NOW + HOUR, "b")[0].detail
    await fanout.start_worker(**UNSWEPT)
    for _ in range(2):
        await closed(await fanout.client.submit("test.echo", [1]))
    assert "clock_skew" not in await examine(fanout)
    # As if the database's clock went a minute behind Temporal's: all that it has noted is that much earlier.
    for table, column in (("batches", "created_at"), ("batches", "closed_at"), ("events", "at")):
        await fanout.pool.execute(f"update fanout.{table} set {column} = {column} - interval '1 minute'")
    slowest = await fanout.pool.fetchval(
        """select extract(epoch from max(e.at - b.created_at))::float8
        from fanout.batches b join fanout.events e on e.batch_id = b.id and e.kind = 'started'"""
    )
    found = (await examine(fanout))["clock_skew"]
    assert "ahead of that of the database" in found.detail
    assert 59.9 - slowest < float(found.detail.split("at least ")[1].split(" s")[0]) <= 60


async def test_a_schema_of_another_version_is_found_and_the_rest_is_let_be(fanout: Deployment, stack: Stack) -> None:
    url = await create_database(stack, "template0")
    empty = fanout.run("doctor", "--json", "--database-url", url)
    [behind] = json.loads(empty.stdout)["findings"]
    assert (empty.returncode, behind["code"], behind["fix"]) == (1, "schema_behind", "python starter.py migrate")
    assert list(behind) == ["code", "severity", "detail", "fix"]
    await fanout.pool.execute("update fanout.meta set schema_version = schema_version + 1")
    ahead = fanout.run("doctor", "--json", "--namespace", "default")
    assert [finding["code"] for finding in json.loads(ahead.stdout)["findings"]] == ["schema_ahead"]


async def test_settings_of_the_server_that_lose_data_or_stop_work_are_found(fanout: Deployment) -> None:
    name = await fanout.pool.fetchval("select current_database()")
    await fanout.pool.execute(f'alter database "{name}" set synchronous_commit = off')
    [finding] = json.loads(fanout.run("doctor", "--json").stdout)["findings"][:1]
    assert (finding["code"], finding["severity"]) == ("synchronous_commit_off", "warning")
    facts = await fanout.client.store.health.read_server()
    assert (facts.fsync, facts.cluster_name) == (False, CLUSTER_NAME)
    assert of_settings(facts) == []
    worse = replace(facts, cluster_name="main", autovacuum=False, connections=facts.most_connections)
    assert [each.code for each in of_settings(worse)] == ["fsync_off", "autovacuum_off", "connections_nearly_used"]
