"""Items that kill what runs them: found by a child process that dies under a living worker, and nobody else pays."""

import pytest

from fanout import Item
from fanout.client import BatchHandle
from fanout.store.audit import count_recorded_twice, install_audit
from tests.ledger import calls, closed, events, start_worker
from tests.supervisor import supervised
from tests.support import Deployment

DEADLY = "tests.handlers.deadly"


async def assert_only_one_failed(batch: BatchHandle, seq: int) -> None:
    """The poison item failed as such, all others completed, and no attempt was charged to anybody."""
    rows = [row async for row in batch.results()]
    assert {row.attempts for row in rows} == {0}
    assert [row.seq for row in rows if row.status != "completed"] == [seq]
    error = rows[seq].error
    assert error is not None
    assert (rows[seq].status, rows[seq].crashes) == ("failed", 3)
    assert (error["code"], error["type"]) == ("poison", "ProcessDied")


@pytest.mark.parametrize("handler", ["deadly.loop", pytest.param("deadly.thread", marks=pytest.mark.chaos)])
async def test_a_poison_item_ends_at_its_third_start_and_takes_no_other_with_it(
    fanout: Deployment, handler: str
) -> None:
    """Whatever mode its handler has: the third start is in a child process."""
    await install_audit(fanout.pool)
    payloads = [{"deadly": seq == 5} if handler == "deadly.loop" else seq == 5 for seq in range(10)]
    async with supervised(fanout, handlers=DEADLY) as supervisor:
        batch = await fanout.client.submit(handler, payloads)
        status = await closed(batch, 90)
        assert (status.status, status.completed, status.failed) == ("completed_with_failures", 9, 1)
        assert supervisor.deaths == [137, 137]
    await assert_only_one_failed(batch, 5)
    assert len(calls(fanout, 5)) == 3
    assert await count_recorded_twice(fanout.pool, batch.batch_id) == 0
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_bystanders_that_die_with_a_poison_item_complete_uncharged(fanout: Deployment) -> None:
    """They share its worker both times, and run a second each, so that they are suspects as it is."""
    payloads = [{"seconds": 1, "deadly": seq == 4} for seq in range(5)]
    async with supervised(fanout, handlers=DEADLY):
        batch = await fanout.client.submit("deadly.loop", payloads, range_size=5)
        status = await closed(batch, 90)
    assert (status.completed, status.failed) == (4, 1)
    await assert_only_one_failed(batch, 4)
    assert len(calls(fanout, 4)) == 3


async def test_one_poison_item_of_a_thousand_costs_two_workers(fanout: Deployment) -> None:
    async with supervised(fanout, "--concurrency", "20", handlers=DEADLY) as supervisor:
        batch = await fanout.client.submit("deadly.quick", [seq == 500 for seq in range(1_000)])
        status = await closed(batch, 120)
        assert (status.completed, status.failed) == (999, 1)
        assert len(supervisor.deaths) <= 2
    await assert_only_one_failed(batch, 500)
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_a_child_that_dies_hangs_or_eats_costs_its_own_item_only(fanout: Deployment) -> None:
    """A death, and memory over the limit, is a lost execution; a hang is an attempt. The worker lives on."""
    worker = await start_worker(fanout, "--concurrency", "4", handlers=DEADLY)
    words = ["exit", "hang", "eat", *["fine"] * 8]
    batch = await fanout.client.submit("deadly.child", [Item(word, key=f"{n} {word}") for n, word in enumerate(words)])
    status = await closed(batch, 120)
    assert (status.completed, status.failed) == (8, 3)
    found = {}
    async for row in batch.results():
        code = None if row.error is None else row.error["code"]
        found[row.seq] = (row.status, code, row.attempts, row.crashes)
        assert len(calls(fanout, row.seq)) == (1 if row.status == "completed" else row.attempts + row.crashes)
    assert found[0] == ("failed", "poison", 0, 3)
    assert found[1] == ("failed", "timeout", 2, 0)
    assert found[2] == ("failed", "poison", 0, 3)
    assert {found[seq] for seq in range(3, 11)} == {("completed", None, 0, 0)}
    assert worker.process.poll() is None


async def test_a_handler_that_blocks_its_loop_is_named_and_starves_nobody(fanout: Deployment) -> None:
    """It blocks for longer than the lease; its worker's claims stay, a neighbour's time stands still with it."""
    worker = await start_worker(fanout, handlers=DEADLY)
    idle = await start_worker(fanout, handlers=DEADLY)
    seconds = 2.5 * fanout.settings.heartbeat_seconds
    batch = await fanout.client.submit("deadly.block", [seconds, *[0] * 9])
    assert (await closed(batch, 90)).completed == 10
    async for row in batch.results():
        assert (len(calls(fanout, row.seq)), row.attempts, row.crashes) == (1, 0, 0)
    [blocked] = await events(batch, fanout, "blocked")
    assert (blocked["seq"], blocked["item_key"]) == (0, "0")
    said = worker.log.read_text() + idle.log.read_text()
    assert "is blocked" in said
    assert "handler deadly.block" in said
    assert "deadly.py" in said
