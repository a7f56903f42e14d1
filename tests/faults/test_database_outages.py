"""PostgreSQL goes away, comes back, moves, or loses an answer: no item is lost, started twice, or charged for it."""

import asyncio
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from fanout import BatchHandle, Settings
from fanout.devstack import Stack
from fanout.devstack.postgres import Postgres
from fanout.devstack.programs import find_programs
from fanout.store.audit import install_audit
from tests.conftest import SHORT_HEARTBEAT_SECONDS
from tests.faults.batches import assert_untouched, reach, recover, start_worker, started
from tests.faults.proxy import Line
from tests.faults.servers import (
    OwnServer,
    deployed,
    line_to,
    on_own_postgres,
    own_postgres,
    postgres_line,
    set_read_only,
    temporal_line,
    through,
)
from tests.support import Deployment, WorkerProcess, eventually

ITEMS = 200
SEED = 20261129
LATER_SECONDS = 1.5
UNHURRIED_SECONDS = 8.0
Outage = Callable[[Deployment, OwnServer[Postgres], float], Awaitable[None]]


async def read_only(fanout: Deployment, postgres: OwnServer[Postgres], seconds: float) -> None:
    await set_read_only(postgres.server.url, True)
    await asyncio.sleep(seconds)
    await set_read_only(postgres.server.url, False)


async def restarted(fanout: Deployment, postgres: OwnServer[Postgres], seconds: float) -> None:
    await postgres.kill()
    await postgres.start()


async def terminated(fanout: Deployment, postgres: OwnServer[Postgres], seconds: float) -> None:
    end = time.monotonic() + seconds
    connection = await asyncpg.connect(postgres.server.url)
    try:
        while time.monotonic() < end:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'fanout %'"
            )
            await asyncio.sleep(0.3)
    finally:
        await connection.close()


async def stopped(fanout: Deployment, postgres: OwnServer[Postgres], seconds: float) -> None:
    await postgres.stop()
    await asyncio.sleep(seconds)
    await postgres.start()


@pytest.mark.parametrize(("outage", "seconds"), [(read_only, 3), (restarted, 0), (terminated, 3), (stopped, 8)])
async def test_an_outage_of_the_database_costs_no_item_anything(
    stack: Stack, tmp_path: Path, outage: Outage, seconds: float
) -> None:
    await outlive(stack, tmp_path, outage, seconds)


async def outlive(stack: Stack, folder: Path, outage: Outage, seconds: float) -> None:
    # A lease that a busy machine lets run out is no outage; one that stops for longer than it is the case to be seen.
    lease_seconds = SHORT_HEARTBEAT_SECONDS if outage is stopped else UNHURRIED_SECONDS
    async with on_own_postgres(stack, folder, heartbeat_seconds=lease_seconds) as (fanout, postgres):
        batch = await begin(fanout)
        await outage(fanout, postgres, seconds)
        print(f"{outage.__name__}: went on after {await recover(batch):.1f} s")
        await assert_untouched(fanout, batch)


async def begin(fanout: Deployment) -> BatchHandle:
    """A batch on two workers, three tenths of it done."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "5")
    await start_worker(fanout, "--concurrency", "5")
    batch = await fanout.client.submit("outage.work", [0.1] * ITEMS)
    await reach(batch, ITEMS * 3 // 10)
    return batch


async def test_items_that_run_across_a_long_outage_are_not_started_again(fanout: Deployment) -> None:
    """Temporal is out of reach too, and gives their ranges to whichever worker is back first.

    The lease of the other, which runs them all, had no chance to be renewed either.
    """
    await run_across(fanout, 8)


async def run_across(fanout: Deployment, seconds: float) -> None:
    await install_audit(fanout.pool)
    async with temporal_line(fanout) as temporal, postgres_line(fanout) as first, postgres_line(fanout) as second:
        await start_worker(fanout, "--concurrency", "20", **through(fanout, postgres=second, temporal=temporal))
        batch = await fanout.client.submit("outage.work", [seconds + 20] * 20, range_size=5)
        await started(fanout, 20)
        await start_worker(fanout, "--concurrency", "20", **through(fanout, postgres=first, temporal=temporal))
        cut_at = await fanout.pool.fetchval("select clock_timestamp()")
        for line in (temporal, first, second):
            line.cut()
        await asyncio.sleep(seconds)
        temporal.restore()
        # By then Temporal has given every range anew, and the workers are about to claim.
        await asyncio.sleep(2 * LATER_SECONDS)
        first.restore()
        back = "select count(*) > 0 from fanout.workers where seen_at > $1"
        await eventually(lambda: fanout.pool.fetchval(back, cut_at))
        second.restore()
        await assert_untouched(fanout, batch, seconds + 60)


async def test_after_a_failover_connections_to_the_old_server_are_given_up(stack: Stack, tmp_path: Path) -> None:
    """The old server lives on, takes no writes, and closes nothing; the address leads to the new one."""
    async with (
        own_postgres(tmp_path / "old") as old,
        line_to(old.server.url) as line,
        deployed(
            replace(stack, database_url=by(line, old.server.url)), tmp_path, heartbeat_seconds=UNHURRIED_SECONDS
        ) as fanout,
    ):
        batch = await begin(fanout)
        copy_server(old.server, tmp_path)
        async with own_postgres(tmp_path / "new") as new:
            await fail_over(line, old, new)
            print(f"failover: went on after {await recover(batch):.1f} s")
            await assert_untouched(fanout, batch)


def by(line: Line, url: str) -> str:
    """The same database, by way of the line."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{line.address}").geturl()


def copy_server(old: Postgres, folder: Path) -> None:
    """Makes the data folder of a standby that follows the old server."""
    (folder / "new").mkdir()
    program = find_programs(Settings()).postgres_bin / "pg_basebackup"
    backup = [str(program), "-R", "-c", "fast", "-X", "stream", "-D", str(folder / "new" / "postgres")]
    subprocess.run([*backup, "-d", old.url], check=True, capture_output=True, timeout=60)


async def fail_over(line: Line, old: OwnServer[Postgres], new: OwnServer[Postgres]) -> None:
    """Demotes the old server, waits until the new one has all of its writes, and lets it take over."""
    await set_read_only(old.server.url, True)
    before, after = await asyncpg.connect(old.server.url), await asyncpg.connect(new.server.url)
    try:
        end = await before.fetchval("select pg_current_wal_insert_lsn()::text")

        async def caught_up() -> bool:
            return bool(await after.fetchval("select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end))

        await eventually(caught_up)
        await after.execute("select pg_promote()")
        await after.execute("alter system reset default_transaction_read_only")
    finally:
        await before.close()
        await after.close()
    line.retarget("127.0.0.1", new.server.ports[0])
    assert line.connections > 0


async def test_work_whose_acknowledgement_is_lost_is_neither_repeated_nor_forgotten(fanout: Deployment) -> None:
    await lose_answers(fanout, rounds=6)


async def lose_answers(fanout: Deployment, rounds: int, seed: int = SEED) -> None:
    """The line swallows the answers to claims and settles that are done, at random moments."""
    rng = random.Random(seed)
    await install_audit(fanout.pool)
    async with postgres_line(fanout) as line:
        worker = await start_worker(fanout, "--concurrency", "10", **through(fanout, postgres=line))
        batch = await fanout.client.submit("outage.work", [0.05] * ITEMS + [5.0] * 10)
        for number in range(rounds):
            await reach(batch, number * ITEMS // rounds)
            await asyncio.sleep(rng.uniform(0, 0.2))
            line.drop_replies()
            await asyncio.sleep(rng.uniform(0.1, 0.6))
            line.restore()
        await reach(batch, ITEMS)
        line.drop_replies()
        # One of the last is recorded, and its worker does not hear of it.
        await reach(batch, ITEMS + 1)
        await asyncio.sleep(0.2)
        line.restore()
        await assert_untouched(fanout, batch)
        assert "the database is away" in worker.log.read_text()


async def test_a_worker_ends_in_time_while_the_database_is_stopped(stack: Stack, tmp_path: Path) -> None:
    async with on_own_postgres(stack, tmp_path) as (fanout, postgres):
        worker = await start_worker(fanout, "--concurrency", "5", "--grace", "3")
        batch = await fanout.client.submit("outage.work", [1.0] * 3 + [60.0] * 7, range_size=10)
        await started(fanout, 5)
        await postgres.stop()
        code, seconds = await asyncio.to_thread(ended, worker)
        assert code == 1
        # The grace time, what a drain may take beyond it, and the end of a process on a busy machine.
        assert seconds < 3 + 5 + 3
        await postgres.start()
        assert (await batch.progress()).failed == 0


def ended(worker: WorkerProcess) -> tuple[int, float]:
    since = time.monotonic()
    return worker.stop(), time.monotonic() - since
