"""Every statement prepares, and the hot ones reach their rows by key, however little the planner knows."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from fanout.store import BatchStore, Connection, Pool, connect_pool, migrate
from fanout.store.audit import install_audit
from fanout.store.statements import STATEMENTS
from tests.faults.servers import own_postgres
from tests.store.support import STALE_AFTER, actors, add_batch, completions

SNAPSHOT = Path(__file__).with_name("statements.txt")
HEADER = """\
# Parameters and columns of every statement, as PostgreSQL prepares them. Written anew by
#     FANOUT_WRITE_SNAPSHOTS=1 .venv/bin/python -m pytest tests/store/test_plans.py -k prepares
"""
SCRIPTS = {"install_audit"}

ROWS = 50_000
GROUP = 500
SPAN = (30_000, 30_000 + 2 * GROUP)
KEYS = {"results": "results_pkey", "items": "items_pkey"}
# What the planner may know: nothing, everything, or only of other batches, which is what it does know most of the time.
KNOWLEDGE = ("nothing", "everything", "another batch")


async def test_every_statement_prepares_with_the_types_of_the_snapshot(url: str) -> None:
    async with actors(url, 1) as (actor,):
        await install_audit(actor.pool)
        async with actor.pool.acquire() as connection:
            found = HEADER + "".join([await _describe(connection, name) for name in sorted(STATEMENTS)])
    if "FANOUT_WRITE_SNAPSHOTS" in os.environ:
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text()


async def _describe(connection: Connection, name: str) -> str:
    if name in SCRIPTS:
        return f"{name} is a script\n"
    prepared = await connection.prepare(STATEMENTS[name])
    parameters = ", ".join(_type_name(kind) for kind in prepared.get_parameters())
    columns = ", ".join(f"{column.name} {_type_name(column.type)}" for column in prepared.get_attributes() or ())
    return f"{name} ({parameters}) -> ({columns})\n"


def _type_name(kind: Any) -> str:
    return f"{kind.name.removesuffix('[]')}[]" if kind.kind == "array" else str(kind.name)


@dataclass(frozen=True)
class Scan:
    """One node that reads a table, with the rows that it looked at in all its loops."""

    table: str
    kind: str
    index: str | None
    loops: int
    touched: float


def scans(plan: dict[str, Any], index: str | None = None) -> Iterator[Scan]:
    """All scans of a plan and of what is below it; `index` is that of a bitmap's heap scan."""
    index = plan.get("Index Name", index)
    for child in plan.get("Plans", []):
        yield from scans(child)
        if child["Node Type"] == "Bitmap Index Scan":
            index = child["Index Name"]
    removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    if "Scan" in plan["Node Type"] and "Relation Name" in plan:
        loops = plan["Actual Loops"]
        yield Scan(plan["Relation Name"], plan["Node Type"], index, loops, (plan["Actual Rows"] + removed) * loops)


@dataclass
class Lab:
    """A connection that explains statements on a big batch; nothing that they do stays."""

    connection: Connection
    batch_id: UUID
    worker_id: UUID
    claim_id: UUID

    async def explain(self, name: str, *values: object) -> dict[str, Any]:
        """The plan that the session's plan_cache_mode makes, with what it touched."""
        literals = ", ".join(_literal(value) for value in values)
        await self.connection.execute(f"prepare {name} as {STATEMENTS[name]}")
        transaction = self.connection.transaction()
        await transaction.start()
        answer = await self.connection.fetchval(f"explain (analyze, buffers, format json) execute {name}({literals})")
        await transaction.rollback()
        found: dict[str, Any] = json.loads(answer)[0]["Plan"]
        return found

    async def hot_plans(self) -> dict[str, dict[str, Any]]:
        """The statements that run for every group, each on 500 rows or on a span of 1,000."""
        new_span = (SPAN[1], SPAN[1] + 2 * GROUP)
        seqs = list(range(SPAN[0], SPAN[0] + GROUP))
        listed = "{" + ",".join(map(str, seqs)) + "}"
        claims = json.dumps({seq: str(self.claim_id) for seq in seqs})
        results = json.dumps({seq: {"pages": 12} for seq in seqs})
        facts = {"claim": str(self.claim_id), "error": {"type": "Broken"}, "kind": "retried", "delay": 1}
        verdicts = json.dumps({seq: {**facts, "attempts": 1, "crashes": 0, "throttles": 0} for seq in seqs})
        batch, worker, stale = self.batch_id, self.worker_id, "10 minutes"
        return {
            "claim": await self.explain("claim", batch, 1, *new_span, GROUP, uuid4(), worker, stale, False),
            "read_claim": await self.explain("read_claim", batch, *SPAN, self.claim_id),
            "complete": await self.explain("complete", batch, listed, claims, results, 3),
            "fail": await self.explain("fail", batch, listed, verdicts, 3),
            "release": await self.explain("release", batch, listed, verdicts, 3),
            "read_settled": await self.explain("read_settled", batch, listed, claims, "completed"),
            "read_remainder": await self.explain("read_remainder", batch, *SPAN, worker, stale),
        }


def _literal(value: object) -> str:
    return "null" if value is None else "'" + str(value).replace("'", "''") + "'"


async def fill(pool: Pool, knowledge: str) -> UUID:
    for table in ("results", "items", "batches", "workers", "progress"):
        await pool.execute(f"alter table fanout.{table} set (autovacuum_enabled = off)")
    batches = BatchStore(pool, STALE_AFTER)
    if knowledge == "another batch":
        await add_batch(batches, ROWS)
        await pool.execute("analyze")
    batch_id = await add_batch(batches, ROWS)
    if knowledge == "everything":
        await pool.execute("analyze")
    return batch_id


@pytest.mark.parametrize("plan_cache_mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("knowledge", KNOWLEDGE)
async def test_hot_statements_touch_their_group_and_not_the_batch(
    url: str, knowledge: str, plan_cache_mode: str
) -> None:
    pool = await connect_pool(url, purpose="plans", size=1)
    batch_id = await fill(pool, knowledge)
    async with actors(url, 1) as (actor,), pool.acquire() as connection:
        claim = await actor.claim(batch_id, GROUP, span=SPAN)
        await connection.execute(f"set plan_cache_mode = {plan_cache_mode}")
        lab = Lab(connection, batch_id, actor.worker.id, claim.items[0].claim_id)
        for name, plan in (await lab.hot_plans()).items():
            found = list(scans(plan))
            assert any(scan.table == "results" for scan in found), name
            for scan in found:
                _check(name, scan)
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30 * GROUP, name
    await pool.close()


def _check(name: str, scan: Scan) -> None:
    if scan.table not in KEYS:
        return
    assert "Seq Scan" not in scan.kind, (name, scan)
    assert scan.index == KEYS[scan.table], (name, scan)
    assert scan.touched <= 2 * GROUP, (name, scan)
    if scan.table == "items":
        assert scan.kind == "Index Scan", (name, scan)
        assert scan.touched <= scan.loops <= GROUP, (name, scan)


async def test_a_pending_row_costs_no_look_at_its_worker(url: str) -> None:
    """Nor does one that a live worker holds; who seems to be dead is looked up anew, once a row."""
    async with actors(url, 3) as (holder, dead, claimer):
        batch_id = await add_batch(holder.batches, 400)
        await holder.claim(batch_id, limit=100)
        await dead.claim(batch_id, limit=3)
        await dead.work.remove_worker(dead.worker.id)
        await claimer.pool.execute("set track_functions = 'all'")
        before = await _calls(claimer.pool)
        assert len((await claimer.claim(batch_id)).items) == 300
        assert await _calls(claimer.pool) - before == 3


async def _calls(pool: Pool) -> int:
    await pool.execute("select pg_stat_force_next_flush()")
    return int(
        await pool.fetchval("select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = 'is_live'")
    )


async def test_claim_and_settle_leave_nearly_no_index_entries(tmp_path: Path) -> None:
    """The fillfactor of the guard leaves room for both updates of a row beside it.

    On a server of its own: a long transaction in any database of a server keeps the room of old versions (89 % then).
    """
    async with own_postgres(tmp_path / "own") as postgres:
        url = postgres.server.url
        pool = await connect_pool(url, purpose="migration", size=1)
        await migrate(pool)
        await pool.close()
        updates, hot = await _updates_of_results(url)
    assert updates == 10_000
    assert hot >= 0.9 * updates


async def _updates_of_results(url: str) -> tuple[int, int]:
    """Claims and settles 5,000 items; how many updates that made, and how many of them touched no index."""
    async with actors(url, 1) as (actor,):
        batch_id = await add_batch(actor.batches, 5_000)
        for first in range(0, 5_000, GROUP):
            claim = await actor.claim(batch_id, span=(first, first + GROUP))
            await actor.work.complete(batch_id, completions(claim.items), 0)
        await actor.pool.execute("select pg_stat_force_next_flush()")
        row = await actor.pool.fetchrow(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'fanout.results'::regclass"
        )
    assert row is not None
    return row["n_tup_upd"], row["n_tup_hot_upd"]
