"""`pixel`: how long after an item has settled the dashboard shows it, in a real browser."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from uuid import UUID

from playwright.async_api import Page

from benchmarks.browser import browsing
from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import Rig, say
from fanout.http.serving import listen, make_server

ITEMS = 1_000
ITEM_SECONDS = 0.05
RUNS = 1
HOST = "127.0.0.1"
MEDIAN_SECONDS = 0.3
LATE_SECONDS = 1.0
SHOWN_SECONDS = 30.0
PROMISE = Limit(1.0)
# Both clocks are this machine's: the database's, and the browser's, which counts in milliseconds.
WATCH = """() => {
  const place = document.querySelector(".legend [data-state=completed] dd");
  window.changes = [];
  const note = () => window.changes.push(
    [Number(place.textContent.replaceAll(",", "")), (performance.timeOrigin + performance.now()) / 1000]);
  new MutationObserver(note).observe(place, { childList: true, characterData: true, subtree: true });
}"""
ALL_SHOWN = "(items) => window.changes.length > 0 && window.changes.at(-1)[0] >= items"


@dataclass(frozen=True)
class Lateness:
    """One run: seconds from settle to page, of each item, and how often the page changed."""

    seconds: Sequence[float]
    changes: int

    @property
    def median(self) -> float:
        """Half of the items are shown sooner."""
        return median(self.seconds)

    @property
    def late(self) -> float:
        """99 of 100 items are shown sooner."""
        return quantiles(self.seconds, n=100)[-1]


def cases(options: Options) -> list[Case]:
    """One line."""
    items = options.items or ITEMS
    return [Case(f"pixel {items:,}", partial(measure, items=items, runs=options.pairs or RUNS))]


async def measure(rig: Rig, items: int, runs: int) -> Measured:
    """The median of settle to page, over the seconds promised; 99 of 100 have a promise of their own."""
    await rig.start_worker("--concurrency", "1")
    found = []
    async with serving(rig) as address, browsing() as page:
        for run in range(runs):
            found.append(await watch(rig, page, address, items))
            say(f"run {run + 1} of {runs}: median {found[-1].median:.3f} s, 99 of 100 within {found[-1].late:.3f} s")
    return Measured(
        name="pixel",
        compares=f"median seconds from settled_at to the dashboard's change, over the {MEDIAN_SECONDS:g} s promised",
        items=items,
        concurrency=1,
        ratios=[one.median / MEDIAN_SECONDS for one in found],
        sides={"fanout": [one.median for one in found], "promised": [MEDIAN_SECONDS] * runs},
        limit=PROMISE,
        holds=all(one.late <= LATE_SECONDS for one in found),
        details={
            "percentile_99_seconds": [round(one.late, 3) for one in found],
            "slowest_seconds": [round(max(one.seconds), 3) for one in found],
            "changes": [one.changes for one in found],
        },
    )


@asynccontextmanager
async def serving(rig: Rig) -> AsyncIterator[str]:
    """The address of the HTTP interface, in this process."""
    settings = rig.settings.with_values({"grace_seconds": 1})
    [listener] = listen(HOST, 0, settings)
    server = make_server(rig.client, HOST, settings)
    # `serve` would take this process's signals.
    task = asyncio.create_task(server._serve([listener]))
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def watch(rig: Rig, page: Page, address: str, items: int) -> Lateness:
    """Runs one batch with the dashboard open."""
    batch = await rig.client.submit("bench.sleep", (ITEM_SECONDS for _ in range(items)))
    await batch.pause()
    await page.goto(f"{address}/#/batches/{batch.batch_id}")
    await page.locator(".badge[data-state=paused]").first.wait_for()
    await page.evaluate(WATCH)
    await batch.resume()
    await rig.finish(batch)
    await page.wait_for_function(ALL_SHOWN, arg=items, timeout=1_000 * SHOWN_SECONDS)
    changes = await page.evaluate("() => window.changes")
    return await judge(rig, batch.batch_id, changes)


async def judge(rig: Rig, batch_id: UUID, changes: list[tuple[int, float]]) -> Lateness:
    """Holds the times of the rows against those of the page. What had settled before the page was there is left out."""
    rows = await rig.pool.fetch(
        "select extract(epoch from settled_at)::float8 as at from fanout.results where batch_id = $1 order by 1",
        batch_id,
    )
    counts = [count for count, _ in changes]
    # What the first change shows may have been on the page already when the watch began.
    known = changes[0][0]
    seconds = [
        changes[bisect_left(counts, number)][1] - row["at"]
        for number, row in enumerate(rows, start=1)
        if number >= known
    ]
    return Lateness(seconds, len(changes))
