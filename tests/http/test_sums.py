"""Failures by kind and the timeline: exact where that is cheap, else from a sample that says so."""

import httpx
import pytest

from fanout.store import browsing
from tests.ledger import closed
from tests.support import Deployment

TOTAL = 30_000
# Every seventh fails, one of a hundred of these with a code of its own, and a single one oddly; half an hour of work.
WORKED = """update fanout.results set status = case when seq % 7 = 0 then 'failed' else 'completed' end,
    claim_id = gen_random_uuid(), worker_id = gen_random_uuid(),
    settled_at = timestamptz '2026-01-01' + seq * interval '60 milliseconds',
    result = case when seq % 7 <> 0 then '1'::jsonb end,
    error = case when seq % 7 = 0 then jsonb_build_object(
        'code', case when seq = 7 then 'single' when seq % 700 = 0 then 'rare' else 'common' end,
        'type', 'Odd', 'message', repeat('m', 1000)) end
    where batch_id = $1"""
COUNTED = """with counts as (
    select count(*) filter (where status = 'completed') as completed,
           count(*) filter (where status = 'failed') as failed
    from fanout.results where batch_id = $1
) update fanout.batches set status = 'completed_with_failures', started_at = '2026-01-01',
    closed_at = timestamptz '2026-01-01' + interval '30 minutes', completed = counts.completed, failed = counts.failed,
    cancelled = 0 from counts where id = $1"""
TOLD = """select fanout.emit($1, jsonb_agg(jsonb_build_object('kind', 'failed', 'class', 'failed/Odd',
    'data', jsonb_build_object('seq', seq)) order by seq))
    from fanout.results where batch_id = $1 and status = 'failed'"""


async def worked(fanout: Deployment, total: int) -> str:
    """The path of a batch whose items have settled."""
    batch = await fanout.client.submit("test.echo", range(total), key=f"k{total}", allow_unknown=True)
    for statement in (WORKED, COUNTED, TOLD):
        await fanout.pool.execute(statement, batch.batch_id)
    return f"/batches/{batch.batch_id}"


async def test_a_big_batch_is_estimated_and_a_single_failure_is_still_named(
    fanout: Deployment, api: httpx.AsyncClient
) -> None:
    path = await worked(fanout, TOTAL)
    found = (await api.get(f"{path}/failures")).json()
    failed = len(range(0, TOTAL, 7))
    assert (found["failed"], found["estimated"], found["left_out"]) == (failed, True, 0)
    counts = {group["code"]: group["count"] for group in found["groups"]}
    assert list(counts) == ["common", "rare", "single"]
    assert counts["common"] == pytest.approx(failed, rel=0.05)
    assert 5 <= counts["rare"] <= 120
    assert counts["single"] < 5
    for group in found["groups"]:
        example = group["example"]
        assert example["item_key"] == str(example["seq"])
        assert (example["seq"] % 7, len(example["message"])) == (0, 300)
    timeline = (await api.get(f"{path}/timeline", params={"spans": 30})).json()
    assert (timeline["estimated"], timeline["span_seconds"], len(timeline["spans"])) == (True, 60.0, 30)
    for span in timeline["spans"]:
        assert span["completed"] + span["failed"] == pytest.approx(TOTAL / 30, rel=0.25)
    assert sum(span["failed"] for span in timeline["spans"]) == pytest.approx(failed, abs=30)


async def test_a_smaller_batch_is_counted(
    fanout: Deployment, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await worked(fanout, 9_000)
    failed = len(range(0, 9_000, 7))
    # More than the batch's events name.
    assert failed > 1_000
    found = (await api.get(f"{path}/failures")).json()
    assert (found["failed"], found["estimated"]) == (failed, False)
    assert {group["code"]: group["count"] for group in found["groups"]} == {
        "common": failed - 14,
        "rare": 13,
        "single": 1,
    }
    timeline = (await api.get(f"{path}/timeline", params={"spans": 1})).json()
    assert (timeline["estimated"], timeline["spans"][0]["failed"]) == (False, failed)
    monkeypatch.setattr(browsing, "SAMPLE_ROWS", 100)
    few = await worked(fanout, 700)
    # As few as these are all named by events, so that no sample is needed.
    assert (await api.get(f"{few}/failures")).json()["estimated"] is False


async def test_a_batch_of_nothing_has_a_timeline(fanout: Deployment, api: httpx.AsyncClient) -> None:
    await fanout.start_worker()
    empty = await fanout.client.submit("test.echo", [])
    await closed(empty)
    failing = await fanout.client.submit("test.fail", [1, 2])
    await closed(failing)
    assert (await api.get(f"/batches/{empty.batch_id}/failures")).json()["groups"] == []
    assert (await api.get(f"/batches/{empty.batch_id}/timeline")).status_code == 200
    [group] = (await api.get(f"/batches/{failing.batch_id}/failures")).json()["groups"]
    assert (group["code"], group["count"], group["example"]["item_key"]) == ("hopeless", 2, "0")
