"""Items that are told to come later: never before their time, not all at once, and no slower than they have to be."""

from dataclasses import dataclass
from typing import Any

from fanout import BatchHandle
from fanout.store.audit import install_audit
from tests.ledger import closed
from tests.support import Deployment
from tests.timeline import Timeline, assert_sound, most_at_once, start_worker

WAYS = ("duration", "moment", "header", "date")


async def test_a_throttled_item_never_starts_before_its_time(fanout: Deployment) -> None:
    """By an exception of ours, as a duration or a moment; by an HTTP answer, in seconds or with a date."""
    await install_audit(fanout.pool)
    await start_worker(fanout)
    timeline = Timeline(fanout.folder)
    ways = [{"how": how, "after": after, "seconds": 0.01} for how in WAYS for after in (1, 2.5, 4)]
    batch = await fanout.client.submit("timed.throttled", ways)
    await closed(batch)
    for seq, [until] in timeline.moments("until", batch).items():
        first, second = timeline.moments("start", batch)[seq]
        assert first < until <= second, ways[seq]
    assert {(row.attempts, row.crashes) async for row in batch.results()} == {(0, 0)}
    assert (await assert_sound(fanout, batch)).completed == len(ways)


@dataclass(frozen=True)
class Stampede:
    """So many items, all of which are told once to come back `after` seconds later, on two workers."""

    items: int
    seconds: float
    concurrency: int
    after: int

    @property
    def payload(self) -> dict[str, Any]:
        return {"how": "header", "after": self.after, "seconds": self.seconds}

    @property
    def work_seconds(self) -> float:
        """How long one pass over all items takes at full concurrency."""
        return self.items * self.seconds / self.concurrency


async def test_a_stampede_is_spread_and_costs_no_attempt(fanout: Deployment) -> None:
    stampede = Stampede(items=1_000, seconds=0.05, concurrency=40, after=3)
    assert await stampede_takes(fanout, stampede) < 2


async def test_ranges_that_sleep_do_not_keep_the_others_from_starting(fanout: Deployment) -> None:
    """20 may be pending, of 80 that wait for a minute: the others are through before the first is due."""
    await start_worker(fanout, "--concurrency", "10")
    timeline = Timeline(fanout.folder)
    waiting = {"how": "duration", "after": 60, "seconds": 0.0}
    payloads = [waiting] * 80 + [{"how": "duration", "after": 0, "seconds": 0.0}] * 20
    batch = await fanout.client.submit("timed.throttled", payloads, range_size=1)
    # All 100 for the first time, and the 20 again.
    starts = await timeline.noted("start", batch, 120)
    due = timeline.moments("until", batch)
    assert starts[-1] < min(due[seq][0] for seq in range(80))
    await batch.cancel()


async def stampede_takes(fanout: Deployment, stampede: Stampede) -> float:
    """Answers the time to the last completion as a multiple of the last Retry-After and one pass over the items."""
    await install_audit(fanout.pool)
    for _ in range(2):
        await start_worker(fanout, "--concurrency", str(stampede.concurrency // 2))
    timeline = Timeline(fanout.folder)
    batch = await fanout.client.submit("timed.throttled", [stampede.payload] * stampede.items)
    await closed(batch, 60 + 10 * (stampede.work_seconds + stampede.after))
    starts = timeline.moments("start", batch)
    assert {len(moments) for moments in starts.values()} == {2}
    assert all(starts[seq][1] >= until for seq, [until] in timeline.moments("until", batch).items())
    assert most_at_once(timeline, batch) <= stampede.concurrency
    assert {(row.attempts, row.crashes) async for row in batch.results()} == {(0, 0)}
    assert (await assert_sound(fanout, batch)).completed == stampede.items
    assert_spread(timeline, batch)
    return ratio(timeline, batch, stampede)


def ratio(timeline: Timeline, batch: BatchHandle, stampede: Stampede) -> float:
    began, ended = timeline.flat("start", batch)[0], timeline.flat("end", batch)[-1]
    last_due = timeline.flat("until", batch)[-1] - began
    found = (ended - began) / (last_due + stampede.work_seconds)
    print(f"last due after {last_due:.1f} s, ended after {ended - began:.1f} s: {found:.2f} of what must be")
    return found


def assert_spread(timeline: Timeline, batch: BatchHandle) -> None:
    """The second starts do not come in one instant."""
    seconds = sorted(moments[1] for moments in timeline.moments("start", batch).values())
    widest = max(
        sum(1 for moment in seconds if start <= moment < start + 0.05)
        for start in seconds[:: max(1, len(seconds) // 200)]
    )
    print(f"second starts over {seconds[-1] - seconds[0]:.1f} s, at most {widest} of {len(seconds)} within 50 ms")
    assert widest < len(seconds) / 4
