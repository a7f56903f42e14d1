"""`slow`: items that take a second each. The engine must keep every slot busy."""

from functools import partial

from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import Rig, say

ITEMS = 500
ITEM_SECONDS = 1.0
CONCURRENCY = 50
PAIRS = 3
PROMISE = Limit(1.5)


def cases(options: Options) -> list[Case]:
    """One line."""
    items = options.items or ITEMS
    return [Case(f"slow {items:,}", partial(measure, items=items, runs=options.pairs or PAIRS))]


async def measure(rig: Rig, items: int, runs: int) -> Measured:
    """Seconds from submit to close over the seconds that the handlers need when no slot is ever free."""
    await rig.start_worker("--concurrency", str(CONCURRENCY))
    ideal = -(-items // CONCURRENCY) * ITEM_SECONDS
    found = []
    for run in range(runs):
        _, seconds = await rig.run("bench.sleep", (ITEM_SECONDS for _ in range(items)))
        found.append(seconds)
        say(f"run {run + 1} of {runs}: {seconds:.2f} s, {seconds / ideal:.3f} times the ideal")
    return Measured(
        name="slow",
        compares=f"seconds of Fanout from submit to close, over the ideal of {ITEM_SECONDS:g} s items on all slots",
        items=items,
        concurrency=CONCURRENCY,
        ratios=[seconds / ideal for seconds in found],
        sides={"fanout": found, "ideal": [ideal] * runs},
        limit=PROMISE,
    )
