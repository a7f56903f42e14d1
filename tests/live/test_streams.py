"""What a reader of a batch's stream gets: everything, once, and an end."""

from typing import Any

from fanout import Item
from tests.live.web import reader, serving
from tests.support import Deployment


async def test_two_hundred_items_end_with_forty_failures_and_one_closed(fanout: Deployment) -> None:
    await fanout.start_worker(handlers="tests.handlers.live")
    items = [Item({"fails": seq % 5 == 0}, key=f"k{seq}") for seq in range(200)]
    batch = await fanout.client.submit("test.live", items)
    async with serving(fanout.client) as address:
        heard = await reader(address, batch.batch_id).all()
    assert heard[0].kind == "snapshot"
    ids = [int(message.id) for message in heard if message.id is not None]
    assert ids == list(range(1, len(ids) + 1))
    assert [message.kind for message in heard].count("closed") == 1
    assert heard[-1].kind == "closed"
    failed = [message.data["data"]["item_key"] for message in heard if message.data.get("kind") == "failed"]
    assert sorted(failed) == sorted(f"k{seq}" for seq in range(0, 200, 5))
    shown = [message.data for message in heard if message.kind in ("snapshot", "progress")]
    assert_climbs(shown)
    assert settled(shown[-1]) == 200
    assert shown[-1]["failed"] == 40


def assert_climbs(shown: list[dict[str, Any]]) -> None:
    counts = [settled(status) for status in shown]
    assert counts == sorted(counts)
    assert all(0 <= count <= status["total"] for count, status in zip(counts, shown, strict=True))


def settled(status: dict[str, Any]) -> int:
    return int(status["completed"] + status["failed"] + status["cancelled"])
