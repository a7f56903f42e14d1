"""`recovery`: the only worker is killed half-way. How long until a new one has closed the batch?"""

import time
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import BenchmarkFailed, Rig, say
from fanout.store.audit import count_recorded_twice, count_settles, install_audit

ITEMS = 2_000
ITEM_SECONDS = 0.005
RUNS = 3
TRIES = 5
REACH_SECONDS = 60.0
PROMISED_SECONDS = 15.0
PROMISE = Limit(1.0)


@dataclass(frozen=True)
class Recovery:
    """One run."""

    seconds: float
    settled_at_kill: int
    settles: int
    recorded_twice: int


def cases(options: Options) -> list[Case]:
    """One line."""
    items = options.items or ITEMS
    return [Case(f"recovery {items:,}", partial(measure, items=items, runs=options.pairs or RUNS))]


async def measure(rig: Rig, items: int, runs: int) -> Measured:
    """Seconds from the new worker's start to the close, over the seconds promised; every settle is audited."""
    await install_audit(rig.pool)
    found = []
    for run in range(runs):
        found.append(await recover(rig, items))
        say(f"run {run + 1} of {runs}: {found[-1]}")
    once = all(one.settles == items and one.recorded_twice == 0 for one in found)
    return Measured(
        name="recovery",
        compares=f"seconds from the restart of the only worker to the close, over the {PROMISED_SECONDS:g} s promised",
        items=items,
        concurrency=rig.settings.concurrency,
        ratios=[one.seconds / PROMISED_SECONDS for one in found],
        sides={"fanout": [one.seconds for one in found], "promised": [PROMISED_SECONDS] * runs},
        limit=PROMISE,
        holds=once,
        details={
            "settled_at_kill": [one.settled_at_kill for one in found],
            "settles": [one.settles for one in found],
            "recorded_twice": [one.recorded_twice for one in found],
        },
    )


async def recover(rig: Rig, items: int) -> Recovery:
    """One kill and one restart; again when the batch was quicker than the kill."""
    for _ in range(TRIES):
        worker = await rig.start_worker()
        batch = await rig.client.submit("bench.sleep", (ITEM_SECONDS for _ in range(items)))
        await reach(rig, batch.batch_id, items // 2)
        worker.kill()
        began = rig.spawn().started_at
        settled = await rig.settled(batch.batch_id)
        await rig.finish(batch)
        seconds = time.monotonic() - began
        rig.kill_workers()
        if settled < items:
            pool, batch_id = rig.pool, batch.batch_id
            return Recovery(
                seconds, settled, await count_settles(pool, batch_id), await count_recorded_twice(pool, batch_id)
            )
        say("the batch was done before its worker was killed; once more")
    raise BenchmarkFailed(f"{items} items are too few to kill a worker half-way")


async def reach(rig: Rig, batch_id: UUID, number: int) -> None:
    """Returns as soon as that many items are settled."""
    give_up = time.monotonic() + REACH_SECONDS
    while await rig.settled(batch_id) < number:
        if time.monotonic() > give_up:
            raise BenchmarkFailed(f"{number} items were not settled within {REACH_SECONDS:g} s")
