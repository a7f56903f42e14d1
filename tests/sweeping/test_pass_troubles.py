"""What a pass itself must withstand: other sweepers, locks, trouble with one batch, and too little time."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from fanout.store import QuietBatch, Standstill, SweepStore, connect_pool
from fanout.store.statements import STATEMENTS
from tests.support import Deployment
from tests.sweeping.support import (
    delete_run,
    later,
    quiet,
    quiet_batches,
    started_alone,
    stored_alone,
    sweeper,
    told,
)

pytestmark = pytest.mark.chaos


async def test_the_trouble_of_one_batch_keeps_no_other_from_being_healed(fanout: Deployment) -> None:
    bad, good, held = [await stored_alone(fanout) for _ in range(3)]
    # A name that Temporal refuses to look for.
    await fanout.pool.execute("update fanout.batches set workflow_id = '' where id = $1", bad.batch_id)
    await quiet(fanout)
    async with fanout.pool.transaction() as connection:
        await connection.execute("select from fanout.batches where id = $1 for update", held.batch_id)
        report = await (await sweeper(fanout)).run_pass()
    assert report.examined == 3
    assert {line["batch_id"] for line in report.healed} == {good.batch_id, held.batch_id}
    assert [(line["batch_id"], line["cause"]) for line in report.left_alone] == [(bad.batch_id, "error")]
    assert report.left_alone[0]["evidence"]["error"] == "RPCError"
    [last] = await fanout.pool.fetch("select examined, healed, failed from fanout.last_sweep")
    assert tuple(last) == (3, 2, 1)


async def test_whoever_holds_a_batchs_row_is_at_work_on_it(fanout: Deployment) -> None:
    batch = await started_alone(fanout)
    await delete_run(fanout, batch)
    sweeping = await sweeper(fanout)
    await sweeping.run_pass()
    await later(fanout)
    async with fanout.pool.transaction() as connection:
        await connection.execute("select from fanout.batches where id = $1 for update", batch.batch_id)
        report = await sweeping.run_pass()
    assert [line["cause"] for line in report.left_alone] == ["moved_on"]
    assert (await batch.read()).epoch == 1


async def test_a_namespace_that_is_gone_is_not_taken_for_lost_runs(fanout: Deployment) -> None:
    batch = await started_alone(fanout)
    address = fanout.temporal.service_client.config.target_host
    elsewhere = await Client.connect(address, namespace="no-such-namespace")
    sweeping = await sweeper(fanout, temporal=elsewhere)
    for _ in range(2):
        with pytest.raises(RPCError):
            await sweeping.run_pass()
    assert (await told(fanout, batch), (await batch.read()).epoch) == ([], 1)


async def test_two_sweepers_at_once_revive_each_batch_once(fanout: Deployment) -> None:
    """Both have read the same rows before either of them writes."""
    barrier = asyncio.Barrier(2)

    class Meeting(SweepStore):
        async def list_quiet_batches(self, *arguments: Any) -> list[QuietBatch]:
            found = await super().list_quiet_batches(*arguments)
            if found:
                async with asyncio.timeout(60):
                    await barrier.wait()
            return found

    batches = [await stored_alone(fanout) for _ in range(50)]
    await fanout.pool.execute("update fanout.batches set status = 'processing', started_at = created_at")
    await quiet(fanout)
    await (await sweeper(fanout, limit_seconds=200)).run_pass()
    await later(fanout)
    pair = [await sweeper(fanout, Meeting, limit_seconds=200) for _ in range(2)]
    reports = await asyncio.gather(*(sweeping.run_pass() for sweeping in pair))
    assert [report.examined for report in reports] == [50, 50]
    revived = [line["batch_id"] for report in reports for line in report.healed if line["action"] == "revived"]
    assert sorted(revived) == sorted(batch.batch_id for batch in batches)
    for column in ("b.epoch", "s.revivals + 1"):
        query = f"select min({column}), max({column}) from fanout.batches b join fanout.sweeps s on s.batch_id = b.id"
        assert [tuple(row) for row in await fanout.pool.fetch(query)] == [(2, 2)]
    for batch in batches:
        assert [event["action"] for event in await told(fanout, batch, "swept")] == ["revived"]
        await fanout.temporal.get_workflow_handle((await batch.read()).workflow_id).describe()


async def test_a_pass_that_runs_out_of_time_is_taken_up_by_the_next(fanout: Deployment) -> None:
    class Slow(SweepStore):
        async def note_verdict(self, *arguments: Any) -> Standstill:
            await asyncio.sleep(1)
            return await super().note_verdict(*arguments)

    for _ in range(8):
        await stored_alone(fanout)
    await quiet(fanout)
    first = await (await sweeper(fanout, Slow, limit_seconds=6)).run_pass()
    assert 0 < first.examined < 8
    second = await (await sweeper(fanout)).run_pass()
    assert first.examined + second.examined == 8
    looked_at = {line["batch_id"] for report in (first, second) for line in report.healed}
    assert len(looked_at) == 8
    assert (await (await sweeper(fanout)).run_pass()).examined == 8


async def test_a_pass_gives_up_on_a_lock_in_time(fanout: Deployment) -> None:
    url = fanout.servers.database_url
    sweeping = await sweeper(fanout, limit_seconds=1)
    pool = await connect_pool(url, purpose="lock", size=1)
    try:
        async with pool.transaction() as connection:
            await connection.execute("lock table fanout.sweeps in access exclusive mode")
            with pytest.raises(TimeoutError):
                await sweeping.run_pass()
    finally:
        await pool.close()
    await (await sweeper(fanout)).run_pass()


async def test_a_pass_reads_open_batches_alone_however_many_are_closed(fanout: Deployment) -> None:
    batch = await stored_alone(fanout)
    await fanout.pool.execute(
        """insert into fanout.batches (id, handler, key, workflow_id, fingerprint, status, total, closed_at,
                                       completed, failed, cancelled)
        select gen_random_uuid(), handler, 'closed ' || number, workflow_id, fingerprint, 'completed', 0,
               clock_timestamp(), 0, 0, 0
        from fanout.batches, generate_series(1, 20000) number"""
    )
    await quiet(fanout)
    async with fanout.pool.acquire() as connection:
        plan = await connection.fetch(
            "explain "
            + STATEMENTS["list_quiet_batches"]
            .replace("$1", f"'{UUID(int=0)}'::uuid")
            .replace("$2", "100")
            .replace("$3", "clock_timestamp()")
            .replace("$4", "interval '10 s'")
            .replace("$5", "interval '10 s'")
        )
    text = "\n".join(row[0] for row in plan)
    assert "batches_open" in text, text
    assert [seen.id for seen in await quiet_batches(fanout)] == [batch.batch_id]


CHANGES = {
    "a settle": "insert into fanout.progress (batch_id, slot, completed) select id, 0, 1 from fanout.batches",
    "a retry": "update fanout.batches set epoch = epoch + 1",
    "a pause": "update fanout.batches set status = 'paused'",
    "a cancel": "update fanout.batches set status = 'cancelling', cancelling_at = clock_timestamp()",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_changed_since_a_pass_looked_keeps_it_from_writing(fanout: Deployment, change: str) -> None:
    batch = await started_alone(fanout)
    sweeps = SweepStore(fanout.pool, timedelta(seconds=3))
    [seen] = await quiet_batches(fanout)
    await sweeps.note_verdict(seen, "revive", None)
    await fanout.pool.execute(CHANGES[change])
    before = await batch.read()
    assert not await sweeps.revive_batch(seen, {})
    assert not await sweeps.abandon_batch(seen, "cancelled", "late", {})
    assert (await batch.read(), await told(fanout, batch)) == (before, [])
