"""What people look at costs no more for a big batch than for a small one, however little the planner knows."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from fanout.store import connect_pool
from fanout.store.browsing import SAMPLE_ROWS, step
from tests.store.test_plans import KNOWLEDGE, ROWS, Lab, fill, scans

WINDOW = 2_000


async def browsing_plans(lab: Lab) -> dict[str, tuple[dict[str, Any], int, str]]:
    """Each statement with the rows that it may touch, and the index of items by which it does."""
    batch, none = lab.batch_id, None
    window = (20_000, 20_000 + WINDOW)
    listed = "{" + ",".join(map(str, range(30_000, 30_000 + WINDOW))) + "}"
    sample = (batch, ROWS, step(ROWS))
    return {
        "page_rows": (await lab.explain("page_rows", batch, *window, "failed", none, none, 100), WINDOW, "items_pkey"),
        "find_item_keys": (
            await lab.explain("find_item_keys", batch, "2", "3", "", 100),
            100,
            "items_key_once",
        ),
        "read_rows_at": (await lab.explain("read_rows_at", batch, listed, none, none, none), WINDOW, "items_pkey"),
        "group_sampled_failures": (await lab.explain("group_sampled_failures", *sample), SAMPLE_ROWS, "items_pkey"),
        "sample_settles": (await lab.explain("sample_settles", *sample, 0, 9, 60), SAMPLE_ROWS, "items_pkey"),
        "read_failures": (await lab.explain("read_failures", batch, "{1,2,3}"), 3, "items_pkey"),
        "group_told_failures": (await lab.explain("group_told_failures", batch, 20_000), 0, "items_pkey"),
    }


MODES = ("force_custom_plan", "force_generic_plan")


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
async def test_looking_around_touches_a_bounded_number_of_rows(url: str, knowledge: str) -> None:
    pool = await connect_pool(url, purpose="plans", size=1)
    batch_id = await fill(pool, knowledge)
    for mode in MODES:
        connection = await asyncpg.connect(url)
        await connection.execute(f"set plan_cache_mode = {mode}")
        for name, (plan, most, index) in (await browsing_plans(Lab(connection, batch_id, uuid4(), uuid4()))).items():
            for scan in scans(plan):
                if scan.table in ("results", "items"):
                    assert scan.index == (index if scan.table == "items" else "results_pkey"), (name, scan)
                    assert scan.touched <= most, (name, scan)
        await connection.close()
    await pool.close()


async def test_a_page_of_batches_is_read_by_their_age(url: str) -> None:
    """However many there are."""
    pool = await connect_pool(url, purpose="plans", size=1)
    await pool.execute(
        """insert into fanout.batches (id, handler, key, workflow_id, fingerprint, total, created_at)
        select gen_random_uuid(), 'test.store', n::text, n::text, sha256('x'), 1, now() - n * interval '1 minute'
        from generate_series(1, 20000) n"""
    )
    await pool.execute("analyze fanout.batches")
    [created_at, batch_id] = await pool.fetchrow("select created_at, id from fanout.batches where key = '10000'") or []
    for mode in MODES:
        connection = await asyncpg.connect(url)
        await connection.execute(f"set plan_cache_mode = {mode}")
        lab = Lab(connection, batch_id, batch_id, batch_id)
        [scan] = scans(await lab.explain("page_batches", None, None, created_at, batch_id, 50))
        assert (scan.index, scan.touched <= 60) == ("batches_newest", True), scan
        await connection.close()
    await pool.close()
