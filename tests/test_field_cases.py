"""End to end: what broke for users of comparable systems, on real servers with real workers."""

import asyncio
import json
import math
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from fanout import BatchHandle, FanoutClient, Item, Status
from fanout.contracts import BatchStart, BatchWorkflow
from fanout.errors import InvalidItem
from fanout.store import check_schema
from fanout.store.audit import count_recorded_twice, count_settles, install_audit
from tests.ledger import calls, closed, events, executions, start_worker
from tests.support import ROOT, Deployment, eventually


async def test_repeats_of_a_closed_key_run_nothing(fanout: Deployment) -> None:
    await start_worker(fanout)
    items = [Item(True, key="good"), Item(False, key="bad")]
    first = await fanout.client.submit("case.mixed", items, key="n1")
    await closed(first)
    repeats = await asyncio.gather(*(fanout.client.submit("case.mixed", items, key="n1") for _ in range(20)))
    assert {(repeat.outcome, repeat.batch_id) for repeat in repeats} == {("already_done", first.batch_id)}
    status = await repeats[0].progress()
    assert (status.status, status.completed, status.failed) == ("completed_with_failures", 1, 1)
    assert [len(calls(fanout, seq)) for seq in range(2)] == [1, 1]
    assert len(await executions(fanout, status.workflow_id)) == 1
    duplicates = await fanout.pool.fetchval(
        "select count(*) from fanout.duplicates where batch_id = $1", first.batch_id
    )
    assert duplicates == 20
    assert (await first.retry()).reopened == 1
    await closed(first)
    assert [len(calls(fanout, seq)) for seq in range(2)] == [1, 2]


async def test_a_workflow_whose_batch_was_never_stored_ends_by_itself(fanout: Deployment) -> None:
    """As after a start that was made before its insert, which was then rolled back."""
    await start_worker(fanout)
    start = BatchStart(batch_id=uuid4(), database_id=await check_schema(fanout.pool), handler="case.type", key="gone")
    queue = fanout.settings.names.task_queue
    handle = await fanout.temporal.start_workflow(
        BatchWorkflow.run, start, id="fanout/case.type/gone", task_queue=queue
    )
    with pytest.raises(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), 60)
    assert [status async for status in fanout.client.list()] == []
    assert calls(fanout, 0) == []


async def test_two_submits_of_one_key_at_once_make_one_batch(fanout: Deployment) -> None:
    """Both callers are told."""
    await start_worker(fanout)
    keys: list[str] = []
    async with FanoutClient.connect(fanout.settings, servers=fanout.servers) as other:
        for number in range(20):
            pair = await asyncio.gather(
                *(client.submit("case.listens", [1, 2], key=f"k{number}") for client in (fanout.client, other))
            )
            assert sorted(str(handle.outcome) for handle in pair) == ["joined", "started"]
            assert pair[0].batch_id == pair[1].batch_id
            await pair[0].cancel()
            keys.append((await closed(pair[1])).workflow_id)
    for workflow_id in keys:
        assert len(await executions(fanout, workflow_id)) == 1
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 20


async def test_the_class_of_an_error_decides_how_often_an_item_is_called(fanout: Deployment) -> None:
    await start_worker(fanout)
    expected = {
        "card": (1, "permanent", "CardDeclined"),
        "from cause": (3, "retries_exhausted", "RuntimeError"),
        "transient from cause": (3, "retries_exhausted", "ConnectionError"),
        "group": (3, "retries_exhausted", "ExceptionGroup"),
        "namesake": (3, "retries_exhausted", "PermanentError"),
        "timeout": (3, "retries_exhausted", "TimeoutError"),
    }
    batch = await fanout.client.submit("case.raise", [Item(name, key=name) for name in expected])
    status = await closed(batch)
    assert (status.status, status.failed) == ("completed_with_failures", len(expected))
    found = {}
    async for row in batch.results():
        assert row.error is not None
        assert row.attempts == len(calls(fanout, row.seq))
        found[row.item_key] = (row.attempts, row.error["code"], row.error["type"])
    assert found == expected


async def test_an_empty_batch_closes_at_once(fanout: Deployment) -> None:
    """Also the next of a chain, and on the command line."""
    await start_worker(fanout)
    took: list[float] = []
    for number in range(3):
        began = time.monotonic()
        batch = await fanout.client.submit("case.type", [], key=f"empty {number}")
        status = await closed(batch)
        took.append(time.monotonic() - began)
        assert (status.status, status.total, status.settled, status.percent) == ("completed", 0, 0, 100)
        assert status.closed_at is not None
        assert status.closed_at >= status.created_at
        assert len(await events(batch, fanout, "closed")) == 1
    assert min(took) < 2
    done = await asyncio.to_thread(fanout.run, "submit", "case.type", "--items", "/dev/null", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed"


class Watch:
    """Looks at a batch's workflows while they run: pending activities, history lengths, runs."""

    def __init__(self, fanout: Deployment, workflow_id: str) -> None:
        self.pending = self.events = self.shards = 0
        self._fanout = fanout
        self._parent = workflow_id

    async def look(self) -> None:
        """Once at the parent and at each shard that it has started, all of them first and only runs."""
        self.shards = 0
        await self._describe(self._parent)
        with suppress(RPCError):
            while True:
                await self._describe(f"{self._parent}/1/{self.shards}")
                self.shards += 1

    async def _describe(self, workflow_id: str) -> None:
        seen = await self._fanout.temporal.get_workflow_handle(workflow_id).describe()
        self.pending = max(self.pending, len(seen.raw_description.pending_activities))
        self.events = max(self.events, seen.history_length)
        assert seen.raw_description.workflow_execution_info.first_run_id == seen.run_id, "it continued as new"

    async def until_closed(self, batch: BatchHandle) -> Status:
        waiting = asyncio.create_task(batch.wait())
        while not waiting.done():
            await self.look()
            await asyncio.wait([waiting], timeout=0.2)
        await self.look()
        return waiting.result()


async def test_more_items_than_one_workflow_could_hold_as_activities(fanout: Deployment) -> None:
    await fanout.start_worker()
    for total in (1_999, 2_000, 2_001, 20_000):
        batch = await fanout.client.submit("test.noop", range(total))
        watch = Watch(fanout, (await batch.progress()).workflow_id)
        status = await watch.until_closed(batch)
        assert (status.status, status.completed) == ("completed", total)
        assert watch.pending <= 400
        assert 0 < watch.events < 20_000
        assert (watch.shards > 1) == (total > 5_000)
        assert await fanout.client.store.read_violations(batch.batch_id) == []


LAST_SETTLE = """select extract(epoch from max(r.settled_at) - min(b.cancelling_at))::float8
from fanout.batches b join fanout.results r on r.batch_id = b.id where b.id = $1"""


async def test_a_cancel_reaches_every_shard_of_a_big_batch(fanout: Deployment) -> None:
    await install_audit(fanout.pool)
    await fanout.start_worker("--concurrency", "100")
    batch = await fanout.client.submit("test.sleep", ({"seconds": 0.15} for _ in range(20_000)))
    watch = Watch(fanout, (await batch.progress()).workflow_id)

    async def under_way() -> bool:
        await watch.look()
        return watch.shards >= 2 and (await batch.progress()).completed > 100

    await eventually(under_way)
    await batch.cancel("enough")
    status = await closed(batch, 90)
    assert await fanout.pool.fetchval(LAST_SETTLE, batch.batch_id) < 10
    assert (status.status, status.reason, status.settled) == ("cancelled", "enough", 20_000)
    assert watch.pending <= 400
    for number in range(watch.shards):
        shard = fanout.temporal.get_workflow_handle(f"{status.workflow_id}/1/{number}")
        await asyncio.wait_for(shard.result(), 30)
    assert await count_settles(fanout.pool, batch.batch_id) == 20_000
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_one_invalid_item_of_40_000_stores_nothing(fanout: Deployment) -> None:
    items = ({"number": number if number != 39_999 else math.nan} for number in range(40_000))
    with pytest.raises(InvalidItem) as refused:
        await fanout.client.submit("test.noop", items, key="all or nothing", allow_unknown=True)
    assert refused.value.position == 39_999
    for table in ("batches", "items", "results", "keys", "events", "event_heads", "progress"):
        assert await fanout.pool.fetchval(f"select count(*) from fanout.{table}") == 0


@pytest.mark.parametrize("name", ["huge", "huge permanent", "chain"])
async def test_a_huge_error_is_settled_quickly_and_kept_short(fanout: Deployment, name: str) -> None:
    await start_worker(fanout)
    batch = await fanout.client.submit("case.raise", [name])
    await closed(batch, 10)
    item = await batch.item("0")
    error = item.row.error
    assert error is not None
    assert item.settled_at is not None
    assert item.claimed_at is not None
    assert (item.settled_at - item.claimed_at).total_seconds() < 1
    assert error["type"] == ("PermanentError" if name == "huge permanent" else "ValueError")
    assert max(len(error["message"]), len(error["traceback"])) <= 8_000
    assert (error["truncated"], error["length"]) == ((False, 10) if name == "chain" else (True, 5_000_000))


async def test_a_thousand_huge_errors_are_read_in_a_moment(fanout: Deployment) -> None:
    await start_worker(fanout)
    batch = await fanout.client.submit("case.huge", range(1_000))
    assert (await closed(batch)).failed == 1_000
    began = time.monotonic()
    rows = [row.error async for row in batch.results("failed")]
    assert time.monotonic() - began < 2
    assert len(rows) == 1_000
    assert len(json.dumps(rows)) < 20_000_000


async def test_a_handler_s_module_is_imported_once_and_keeps_its_types(fanout: Deployment) -> None:
    counter = fanout.folder / "imports"
    environment = {"FANOUT_TEST_REGION": "eu", "FANOUT_TEST_COUNTER": str(counter)}
    await fanout.start_worker(handlers="tests.handlers.outside", **environment)
    payload = {"at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "id": UUID(int=7), "amount": Decimal("1.10")}
    invoices = [payload | {"tags": {f"t{number}"}} for number in range(50)]
    batch = await fanout.client.submit("outside.book", invoices)
    assert (await closed(batch)).status == "completed"
    async for row in batch.results():
        assert row.result["types"] == ["Invoice", "datetime", "UUID", "Decimal", "set"]
        assert (row.result["same"]["amount"], row.result["region"]) == ("1.10", "eu")
        assert datetime.fromisoformat(row.result["same"]["at"]) == payload["at"]
    assert len(counter.read_text().splitlines()) == 1


async def test_a_worker_whose_module_fails_says_so_at_its_start(fanout: Deployment) -> None:
    command = [sys.executable, "worker.py", "--handlers", "tests.handlers.basic", "tests.handlers.broken"]
    ended = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=fanout.environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2, ended.stderr
    assert "tests.handlers.broken" in ended.stderr
    assert "LookupError: no configuration for this service" in ended.stderr
    assert "Traceback" not in ended.stderr


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


PAYLOADS: list[Any] = [
    *({}, [], "{}", "null", None, 0, False, True, "", 12345678901234567890123, 1.0, 1e22, -0.0, {"b": 1, "a": None}),
    nested(200),
]
KILL = """select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and application_name like 'fanout %' and application_name <> 'fanout test'"""


async def test_payloads_reach_handlers_unchanged_also_when_every_connection_dies(fanout: Deployment) -> None:
    """Values and types are kept, and nothing runs twice."""
    await install_audit(fanout.pool)
    await start_worker(fanout, "--concurrency", "4")
    payloads = PAYLOADS * 8
    batch = await fanout.client.submit("case.type", payloads)

    async def under_way() -> bool:
        return (await batch.progress()).completed > 20

    await eventually(under_way)
    assert await fanout.pool.fetchval(KILL) >= 5
    status = await closed(batch)
    assert (status.status, status.completed) == ("completed", len(payloads))
    async for row in batch.results():
        payload = payloads[row.seq]
        assert row.result == [type(payload).__name__, repr(payload)]
        assert (row.attempts, row.crashes, len(calls(fanout, row.seq))) == (0, 0, 1)
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_results_come_back_as_they_were_but_for_what_jsonb_rewrites(fanout: Deployment) -> None:
    """Results are `jsonb`: names are sorted, minus zero loses its sign, and 1e22 becomes an integer."""
    await fanout.start_worker()
    batch = await fanout.client.submit("test.echo", PAYLOADS)
    await closed(batch)
    rewritten = {"-0.0": "0.0", "1e+22": "10000000000000000000000", "{'b': 1, 'a': None}": "{'a': None, 'b': 1}"}
    expected = [repr(payload) for payload in PAYLOADS]
    found = [repr(row.result) async for row in batch.results(with_payload=True)]
    assert found == [rewritten.get(text, text) for text in expected]
    assert [repr(row.payload) async for row in batch.results(with_payload=True)] == expected


async def test_a_payload_of_the_largest_size_goes_through_and_one_byte_more_does_not(fanout: Deployment) -> None:
    await fanout.start_worker()
    limit = fanout.settings.max_payload_bytes
    largest = ["x" * (limit - 2), "é" * ((limit - 2) // 2)]
    batch = await fanout.client.submit("test.echo", largest)
    assert (await closed(batch)).completed == 2
    assert [row.result for row in [row async for row in batch.results()]] == largest
    with pytest.raises(InvalidItem, match=f"item 1 .*{limit + 1} bytes.*limit is {limit} bytes"):
        await fanout.client.submit("test.echo", ["fits", "x" * (limit - 1)], key="too large")
    assert await fanout.pool.fetchval("select count(*) from fanout.batches") == 1


async def test_an_item_that_asks_for_a_later_time_is_never_called_earlier(fanout: Deployment) -> None:
    await start_worker(fanout)
    waits = [0.2, 0.7, 1.5]
    batch = await fanout.client.submit("case.later", waits)
    assert (await closed(batch)).completed == 3
    async for row in batch.results():
        first, second = calls(fanout, row.seq)
        assert waits[row.seq] <= second - first < waits[row.seq] + 10
        assert (row.result, row.attempts, row.crashes) == (1, 0, 0)
    assert len(await events(batch, fanout, "throttled")) == 3


async def test_an_item_whose_child_process_dies_once_completes(fanout: Deployment, tmp_path: Path) -> None:
    await fanout.start_worker("--concurrency", "2", handlers="tests.handlers.children")
    deaths: list[dict[str, Any]] = [{"folder": str(tmp_path), "do": word} for word in ("die once", "pid")]
    batch = await fanout.client.submit("child.act", deaths)
    assert (await closed(batch)).status == "completed"
    rows = [row async for row in batch.results()]
    assert [(row.attempts, row.crashes) for row in rows] == [(0, 1), (0, 0)]
    lost = await events(batch, fanout, "lost")
    assert [event["seq"] for event in lost] == [0]
