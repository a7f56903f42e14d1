"""Whole batches through real servers and a real worker process."""

import pytest

from tests.support import Deployment


@pytest.mark.parametrize("total", [0, 1, 2, 1_000, 1_001, 5_001])
async def test_a_batch_of_any_size_closes_right(fanout: Deployment, total: int) -> None:
    await fanout.start_worker()
    batch = await fanout.client.submit("test.noop", range(total))
    status = await batch.wait()
    assert (status.status, status.total, status.completed) == ("completed", total, total)
    assert await fanout.client.store.read_violations(batch.batch_id) == []
