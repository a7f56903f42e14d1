"""One key, one batch: policies, conflicts, and the ledger of the starts that made none."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from fanout import BatchHandle, Item
from fanout.client.dedup import Dedup
from fanout.client.submitting import SubmitOptions, store_batch
from fanout.errors import InvalidRequest, KeyConflict
from tests.ledger import closed, executions
from tests.support import Deployment, eventually

HOUR = timedelta(hours=1)
MOMENT = timedelta(milliseconds=1)


async def submit(fanout: Deployment, *items: Any, key: str = "k", **options: Any) -> BatchHandle:
    return await fanout.client.submit("test.echo", items, key=key, allow_unknown=True, **options)


async def test_while_a_batch_is_open_every_policy_joins_it(fanout: Deployment) -> None:
    first = await submit(fanout, 1)
    for policy in ("forever", "open", "success", HOUR, MOMENT):
        again = await submit(fanout, 1, dedup=policy)
        assert (again.outcome, again.batch_id) == ("joined", first.batch_id)
        with pytest.raises(KeyConflict):
            await submit(fanout, 2, dedup=policy)


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [
        ("forever", "already_done", "already_done"),
        ("open", "started", "started"),
        ("success", "already_done", "started"),
        (HOUR, "already_done", "already_done"),
        (MOMENT, "started", "started"),
    ],
)
async def test_a_policy_decides_what_a_closed_key_may_start(
    fanout: Deployment, policy: Any, after_success: str, after_failure: str
) -> None:
    await fanout.start_worker()
    for handler, expected in (("test.echo", after_success), ("test.fail", after_failure)):
        first = await fanout.client.submit(handler, [1], key="k", dedup=policy)
        await closed(first)
        again = await fanout.client.submit(handler, [1], key="k", dedup=policy)
        assert (again.outcome, again.batch_id != first.batch_id) == (expected, expected == "started")
        await closed(again)
        remembered = (await again.read()).options.get("dedup")
        assert remembered == Dedup.of(policy).stored
        if expected == "started":
            other = await fanout.client.submit(handler, [2, 3], key="k", dedup=policy)
            assert (other.outcome, (await closed(other)).total) == ("started", 2)


@pytest.mark.parametrize("policy", ["never", "", 5, None, timedelta(0), timedelta(days=4000), ["open"]])
async def test_a_bad_policy_is_named(fanout: Deployment, policy: Any) -> None:
    with pytest.raises(InvalidRequest, match="dedup is"):
        await submit(fanout, 1, dedup=policy)
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 0


@pytest.mark.parametrize("workflow_cache", ["0", "1000"])
async def test_new_batches_of_a_key_run_however_close_the_old_run_is(fanout: Deployment, workflow_cache: str) -> None:
    """A start right after the close finds the run of the old batch, which then goes on with the new one."""
    await fanout.start_worker(FANOUT_WORKFLOW_CACHE=workflow_cache)
    ids = set()
    for _ in range(12):
        batch = await fanout.client.submit("test.echo", [1], key="k", dedup="open")
        ids.add(batch.batch_id)
        status = await closed(batch, 180)
        assert (batch.outcome, status.status, status.workflow_id) == ("started", "completed", "fanout/test.echo/k")
    assert len(ids) == 12
    assert await fanout.pool.fetchval("select batch_id from fanout.keys") == batch.batch_id


@pytest.mark.chaos
async def test_the_run_of_an_old_batch_that_lingers_takes_the_new_one_over(fanout: Deployment) -> None:
    await fanout.start_worker()
    old = await fanout.client.submit("test.sleep", [{"seconds": 600}], key="k")
    await eventually(lambda: is_processing(old))
    # As if the canceller had died before it told Temporal: the run waits a while for that.
    await fanout.client.store.cancel_batch(old.batch_id, None)
    await closed(old)
    new = await fanout.client.submit("test.sleep", [{"seconds": 0}], key="k", dedup="open")
    assert (new.outcome, (await closed(new)).status) == ("started", "completed")
    assert await executions(fanout, "fanout/test.sleep/k")


async def is_processing(batch: BatchHandle) -> bool:
    return (await batch.progress()).processing > 0


DIFFERENCES: list[tuple[list[Any], list[Any], int | None, str]] = [
    ([1, 2, 3], [1, 5, 3], 1, "another payload, of 1 bytes like that in the batch"),
    ([1, 2, 3], [1, 25, 3], 1, "of 2 bytes, not the 1 of that in the batch"),
    ([1, 2, 3], [1, 2], None, "2 items, and in the batch 3"),
    ([1, 2], [1, 2, 3, 4], None, "4 items, and in the batch 2"),
    ([], [1], None, "1 items, and in the batch 0"),
    ([Item(1, "a"), Item(2, "b")], [Item(2, "b"), Item(1, "a")], 0, "item 0 is 'b', and in the batch 'a'"),
    ([{"x": 1, "y": 2}] * 2, [{"y": 2, "x": 1}, {"y": 2, "x": 3}], 1, "of 13 bytes like"),
    ([1], [1.0], 0, "of 3 bytes, not the 1 of"),
    ([*range(12_000)], [*range(11_000), *range(12_000, 13_000)], 11_000, "item 11000 (key '11000')"),
]


@pytest.mark.parametrize(("stored", "given", "position", "said"), DIFFERENCES)
async def test_a_conflict_names_the_first_difference(
    fanout: Deployment, stored: list[Any], given: list[Any], position: int | None, said: str
) -> None:
    batch = await submit(fanout, *stored)
    for conflicting in (submit(fanout, *given), fanout.client.check("test.echo", given, key="k")):
        with pytest.raises(KeyConflict) as raised:
            await conflicting
        assert raised.value.difference is not None
        assert (raised.value.batch_id, raised.value.difference.position) == (batch.batch_id, position)
        assert said in str(raised.value)
    assert [row.payload async for row in batch.results(with_payload=True)] == [
        each.payload if isinstance(each, Item) else each for each in stored
    ]


async def test_the_order_of_names_does_not_make_another_request(fanout: Deployment) -> None:
    first = await submit(fanout, Item({"x": 1, "y": 2}, "a"), key="n2")
    again = await submit(fanout, Item({"y": 2, "x": 1}, "a"), key="n2")
    assert (again.outcome, again.batch_id) == ("joined", first.batch_id)
    with pytest.raises(KeyConflict, match=r"item 0 \(key 'a'\) has another payload"):
        await submit(fanout, Item({"x": 1, "y": 3}, "a"), key="n2")
    assert await fanout.client.check("test.echo", [Item({"y": 2, "x": 1}, "a")], key="n2") == 1


async def test_every_start_that_joined_is_in_the_ledger(fanout: Deployment) -> None:
    await fanout.start_worker()
    batch = await submit(fanout, 1)
    await submit(fanout, 1, origin="http")
    await closed(batch)
    await submit(fanout, 1, origin="schedule")
    found = await batch.duplicates()
    assert [(each.origin, each.outcome) for each in found][1:] == [("schedule", "already_done")]
    assert found[0].origin == "http"
    status = await batch.progress()
    assert (status.duplicates, status.duplicate_origin) == (2, "schedule")
    with pytest.raises(InvalidRequest, match="origin"):
        await submit(fanout, 1, origin="nobody")
    for _ in range(10):
        await submit(fanout, 1, origin="http")
    for command in ("status", "why"):
        told = json.loads(fanout.run(command, "test.echo/k", "--json").stdout)
        recent = told["recent_duplicates"]
        assert (told["duplicates"], len(recent)) == (12, 10)
        assert {(each["origin"], each["outcome"]) for each in recent} == {("http", "already_done")}
        assert [each["at"] for each in recent] == sorted((each["at"] for each in recent), reverse=True)
        shown = fanout.run(command, "test.echo/k").stdout
        assert (shown.count("from http, already done"), "and 2 more" in shown) == (10, True)


async def test_a_start_that_is_tried_again_makes_one_batch_and_one_line(fanout: Deployment) -> None:
    """As after a lost answer: each try finds what the first one did."""
    names, store = fanout.settings.names, fanout.client.store
    mine, other = uuid4(), uuid4()
    for key in (None, "k"):
        options = SubmitOptions("test.echo", key, dedup=Dedup.of("open"))
        start_id = uuid4() if key is None else mine
        for _ in range(3):
            answer = await store_batch(store, names, options, [1], 100, start_id=start_id)
            assert answer == (start_id, "started")
    for _ in range(3):
        options = SubmitOptions("test.echo", "k", origin="temporal")
        assert await store_batch(store, names, options, [1], 100, start_id=other) == (mine, "joined")
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 2
    assert await fanout.pool.fetchval("select count(*) from fanout.duplicates") == 1


@pytest.mark.parametrize(
    ("submitters", "keys"), [(40, 10), pytest.param(200, 50, marks=pytest.mark.chaos, id="full size")]
)
async def test_many_submits_of_many_keys_at_once_make_one_batch_a_key(
    fanout: Deployment, submitters: int, keys: int
) -> None:
    """Each is told the truth, and no deadlock reaches anybody: half of them take the keys in reverse order."""

    async def each(number: int) -> list[BatchHandle]:
        order = range(keys) if number % 2 else range(keys - 1, -1, -1)
        return [await submit(fanout, *range(20), key=f"k{key}") for key in order]

    handles = [handle for found in await asyncio.gather(*map(each, range(submitters))) for handle in found]
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == keys
    assert Counter(str(handle.outcome) for handle in handles) == {"started": keys, "joined": (submitters - 1) * keys}
    assert len({handle.batch_id for handle in handles}) == keys
    assert await fanout.pool.fetchval("select count(*) from fanout.duplicates") == (submitters - 1) * keys


async def test_clients_that_post_one_key_at_once_are_told_alike(fanout: Deployment) -> None:
    """Twenty of them, 5,000 items each, half in reverse order, which is another request."""
    items = [Item({"n": n}, f"k{n}") for n in range(5_000)]

    async def post(number: int) -> str:
        try:
            return str((await submit(fanout, *(items if number % 2 else items[::-1]), key="n3")).outcome)
        except KeyConflict as error:
            return error.code

    told = Counter(await asyncio.gather(*map(post, range(20))))
    assert told == {"started": 1, "joined": 9, "key_conflict": 10}
    assert await fanout.pool.fetchval("select count(*) from fanout.results") == 5_000
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1


ODD_KEYS = ("123", "a/b", "a:b", "ключ", ".", "..", "%2F", "é", "e\u0301", "a", "a ", "b:c", "c", "€" * 50)


async def test_odd_keys_are_keys_of_their_own(fanout: Deployment) -> None:
    """Of batches and of items alike, and no two composed of a batch's and an item's are one."""
    await fanout.start_worker()
    batches = [await submit(fanout, *(Item(key, key) for key in ODD_KEYS), key=key) for key in ODD_KEYS]
    assert len({batch.batch_id for batch in batches}) == len(ODD_KEYS)
    for batch, key in zip(batches, ODD_KEYS, strict=True):
        status = await closed(batch, 120)
        assert (status.key, status.completed, status.workflow_id) == (key, len(ODD_KEYS), f"fanout/test.echo/{key}")
        assert (await fanout.client.get(f"test.echo/{key}")).batch_id == batch.batch_id
        assert [(row.item_key, row.result) async for row in batch.results()] == [(each, each) for each in ODD_KEYS]


@pytest.mark.parametrize("key", ["", "a\nb", "€" * 51, "x" * 1_001, 5])
async def test_a_key_that_could_not_be_used_later_is_refused_now(fanout: Deployment, key: Any) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        await submit(fanout, 1, key=key)
    with pytest.raises(InvalidRequest, match="item 1"):
        await submit(fanout, Item(1, "fine"), Item(1, key * 3 if key == "€" * 51 else key))
    assert await fanout.pool.fetchval("select count(*) from fanout.keys") == 0
