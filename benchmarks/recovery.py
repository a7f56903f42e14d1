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
PROMISE = Limit(1.0)
# Heartbeat timeout, and the seconds promised with it: the default, and the way to a quicker recovery.
SETTINGS = ((10.0, 14.0), (3.0, 9.0))


@dataclass(frozen=True)
class Recovery:
    """One run."""

    seconds: float
    settled_at_kill: int
    settles: int
    recorded_twice: int


def cases(options: Options) -> list[Case]:
    """One line with the default heartbeat timeout, one with a shorter one."""
    items, runs = options.items or ITEMS, options.pairs or RUNS
    return [
        Case(
            f"recovery {items:,}, heartbeat timeout {heartbeat:g} s",
            partial(measure, items=items, runs=runs, heartbeat_seconds=heartbeat, promised_seconds=promised),
        )
        for heartbeat, promised in SETTINGS
    ]


async def measure(rig: Rig, items: int, runs: int, heartbeat_seconds: float, promised_seconds: float) -> Measured:
    """Seconds from the new worker's start to the close, over the seconds promised; every settle is audited."""
    rig.environment["FANOUT_HEARTBEAT_SECONDS"] = str(heartbeat_seconds)
    await install_audit(rig.pool)
    found = []
    for run in range(runs):
        found.append(await recover(rig, items))
        say(f"run {run + 1} of {runs}: {found[-1]}")
    once = all(one.settles == items and one.recorded_twice == 0 for one in found)
    return Measured(
        name="recovery",
        compares=f"seconds from the restart of the only worker to the close, over the {promised_seconds:g} s promised",
        items=items,
        concurrency=rig.settings.concurrency,
        ratios=[one.seconds / promised_seconds for one in found],
        sides={"fanout": [one.seconds for one in found], "promised": [promised_seconds] * runs},
        limit=PROMISE,
        holds=once,
        details={
            "heartbeat_seconds": [heartbeat_seconds],
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
