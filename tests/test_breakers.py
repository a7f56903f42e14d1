"""A batch whose items all fail for one reason stops, tries one from time to time, and goes on by itself."""

from typing import Any

from fanout.client import BatchHandle
from tests.ledger import calls, closed, events, start_worker
from tests.support import Deployment, eventually

SERVICE = "tests.handlers.service"


async def opened(batch: BatchHandle) -> Any:
    return (await batch.progress()).breaker


async def test_a_batch_stops_while_one_error_repeats_and_goes_on_when_a_probe_works(fanout: Deployment) -> None:
    """Nearly all items wait for the service to be back; those that failed before can be retried."""
    await start_worker(fanout, "--concurrency", "4", handlers=SERVICE)
    batch = await fanout.client.submit("service.call", [""] * 300, range_size=10)
    breaker = await eventually(lambda: opened(batch))
    assert breaker.error_type == "PermissionError"

    async def probed() -> bool:
        return (await batch.progress()).failed > before

    before = (await batch.progress()).failed + 1
    await eventually(probed)
    assert before < 100
    assert (await batch.progress()).status == "processing"
    (fanout.folder / "up").touch()
    status = await closed(batch, 90)
    assert status.breaker is None
    assert status.completed >= 200
    assert status.completed + status.failed == 300
    [first] = (await events(batch, fanout, "breaker_opened"))[:1]
    assert (first["error_type"], first["in_a_row"], first["probe_in"]) == ("PermissionError", 5, 2)
    assert len(await events(batch, fanout, "breaker_closed")) == 1
    await batch.retry(error_type="PermissionError")
    assert (await closed(batch, 60)).completed == 300
    assert await fanout.client.store.read_violations(batch.batch_id) == []


async def test_one_item_is_tried_in_each_delay_however_many_ranges_wait(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "4", handlers=SERVICE)
    await start_worker(fanout, "--concurrency", "4", handlers=SERVICE)
    batch = await fanout.client.submit("service.call", [""] * 60, range_size=1)
    await eventually(lambda: opened(batch))
    starts: list[float] = []

    async def three_probes() -> bool:
        starts[:] = sorted(at for seq in range(60) for at in calls(fanout, seq))
        return len(starts) >= 3 and starts[-1] - starts[-2] > 1.5 and starts[-2] - starts[-3] > 1.5

    await eventually(three_probes)
    await batch.cancel()
    assert (await closed(batch)).status == "cancelled"


async def test_errors_of_another_kind_do_not_open_it(fanout: Deployment) -> None:
    await start_worker(fanout, handlers=SERVICE)
    batch = await fanout.client.submit("service.call", ["odd"] * 50)
    assert (await closed(batch)).failed == 50
    assert await events(batch, fanout, "breaker_opened") == []


async def test_a_person_who_resumes_the_batch_closes_it(fanout: Deployment) -> None:
    await start_worker(fanout, "--concurrency", "4", handlers=SERVICE)
    batch = await fanout.client.submit("service.call", [""] * 400, range_size=5)
    await eventually(lambda: opened(batch))
    shown = fanout.run("status", str(batch.batch_id))
    assert "open: PermissionError" in shown.stdout
    await batch.pause()
    (fanout.folder / "up").touch()
    assert (await batch.resume()).breaker is None
    status = await closed(batch)
    assert status.completed + status.failed == 400
