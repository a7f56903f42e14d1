"""`noop`: Fanout end to end with a handler that does nothing, against the rows alone."""

import time
from functools import partial
from statistics import median
from uuid import UUID

from benchmarks.bare import FORMS, faster_form, open_bare
from benchmarks.result import Case, Limit, Measured, Options
from benchmarks.rig import Rig, say

SIZES = (2_000, 20_000, 200_000)
PAIRS = 5
PROMISED_FROM = 200_000
PROMISE = Limit(0.25, at_least=True)
COMPARES = (
    "seconds of the same COPY, claim and settle statements in a bare loop without Temporal, over seconds of Fanout "
    "from submit to close as its client sees it"
)
# Where the time of a run went, by the database's clock, which is this machine's.
PHASES = """
select extract(epoch from b.created_at)::float8 as rows_stored, extract(epoch from b.started_at)::float8 as opened,
       extract(epoch from min(r.claimed_at))::float8 as first_claim,
       extract(epoch from max(r.settled_at))::float8 as last_settle, extract(epoch from b.closed_at)::float8 as closed
from fanout.batches b join fanout.results r on r.batch_id = b.id
where b.id = $1 group by b.id
"""


def cases(options: Options) -> list[Case]:
    """One line for each size."""
    sizes = SIZES if options.items is None else (options.items,)
    return [Case(f"noop {items:,}", partial(measure, items=items, pairs=options.pairs or PAIRS)) for items in sizes]


async def measure(rig: Rig, items: int, pairs: int) -> Measured:
    """Alternates between both sides on one database, with a worker that is warm and else idle."""
    await rig.start_worker()
    async with open_bare(rig) as bare:
        form = await faster_form(bare, items)
        say(f"the bare loop is faster {form}")
        bare_seconds, fanout_seconds, phases = [], [], []
        for pair in range(pairs):
            bare_first = pair % 2 == 0
            if bare_first:
                bare_seconds.append(await bare.run(FORMS[form], items))
            seconds, found = await run_fanout(rig, items)
            if not bare_first:
                bare_seconds.append(await bare.run(FORMS[form], items))
            fanout_seconds.append(seconds)
            phases.append(found)
            ratio = bare_seconds[-1] / seconds
            say(f"pair {pair + 1} of {pairs}: bare {bare_seconds[-1]:.2f} s, Fanout {seconds:.2f} s, {ratio:.3f}")
    return Measured(
        name="noop",
        compares=COMPARES,
        items=items,
        concurrency=rig.settings.concurrency,
        ratios=[one / other for one, other in zip(bare_seconds, fanout_seconds, strict=True)],
        sides={"bare": bare_seconds, "fanout": fanout_seconds},
        limit=PROMISE if items >= PROMISED_FROM else None,
        details={
            "bare_form": form,
            "fanout_median_seconds_until": {name: round(median(run[name] for run in phases), 3) for name in phases[0]},
        },
    )


async def run_fanout(rig: Rig, items: int) -> tuple[float, dict[str, float]]:
    """Seconds of one run, and when after its beginning each phase ended."""
    began = time.time()
    batch_id, seconds = await rig.run("bench.noop", (None for _ in range(items)))
    return seconds, {**await read_phases(rig, batch_id, began), "client_knew": seconds}


async def read_phases(rig: Rig, batch_id: UUID, began: float) -> dict[str, float]:
    """The rows' own times, in seconds after `began`."""
    record = await rig.pool.fetchrow(PHASES, batch_id)
    assert record is not None
    return {name: moment - began for name, moment in record.items()}
