"""Runs of random faults against random batches, each repeatable by its seed as far as real processes are."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fanout.store.audit import install_audit
from tests.chaos.customer import Customer, patiently
from tests.chaos.faults import Injector, choose_points
from tests.chaos.ledger import balance, open_ledger
from tests.chaos.loads import Load, choose_loads
from tests.chaos.proofs import Found, prove
from tests.chaos.rig import WORKERS, Lane, Rig, rigged

STILL_SECONDS = 180.0
SHOWN = 20
KINDS = ("lost", "settled twice", "left open", "wrong counts", "ledger", "wrong")


@dataclass(frozen=True)
class Size:
    """How much a run does: from and to."""

    batches: tuple[int, int] = (2, 4)
    faults: tuple[int, int] = (5, 10)
    seconds: tuple[float, float] = (6.0, 12.0)
    share: float = 1.0
    """Of each batch's items."""


FULL = Size()
SMALL = Size(batches=(2, 2), faults=(3, 5), seconds=(2.0, 5.0), share=0.3)


@dataclass
class Run:
    """What one run did and found; no violation means that everything held."""

    seed: int
    seconds: float = 0.0
    batches: int = 0
    items: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Found] = field(default_factory=list)

    @property
    def line(self) -> str:
        """One JSON object."""
        shown = [str(each) for each in self.violations[:SHOWN]]
        left = len(self.violations) - len(shown)
        violations = [*shown, f"and {left} more"] if left else shown
        told = {**vars(self), "faults": dict(+self.faults), "violations": violations}
        return json.dumps({**told, "seconds": round(self.seconds, 1)})


async def run_once(lane: Lane, seed: int, size: Size = FULL) -> Run:
    """One run: batches and faults at the same time, then everything is restored, and all must close by itself."""
    rng = random.Random(seed)
    loads = choose_loads(rng, rng.randint(*size.batches), size.share)
    run = Run(seed, batches=len(loads), items=sum(len(load.payloads) for load in loads))
    points = [choose_points(rng) for _ in range(WORKERS)]
    # The library behind child processes sleeps in a way that libfaketime breaks.
    clocked = rng.random() < 0.4 and not any(load.key == "children" for load in loads)
    began = time.monotonic()
    folder = lane.folder / f"run-{seed}"
    folder.mkdir()
    async with rigged(lane, folder, points, clocked) as rig:
        await install_audit(rig.fanout.pool)
        await open_ledger(rig.fanout)
        customer = Customer(rig.fanout, loads)
        injector = Injector(rng, rig, customer, run.faults)
        await _work(rng, size, customer, injector)
        run.violations = await _judge(rig, customer)
        run.faults["fault point"] = sum(
            post.log.read_text(errors="replace").count("fault point ") for post in rig.posts
        )
    run.seconds = time.monotonic() - began
    return run


async def _work(rng: random.Random, size: Size, customer: Customer, injector: Injector) -> None:
    delays = [rng.uniform(0, 3) for _ in customer.loads]
    faults, seconds = rng.randint(*size.faults), rng.uniform(*size.seconds)
    submits = [customer.submit(load, delay) for load, delay in zip(customer.loads, delays, strict=True)]
    await asyncio.gather(*submits, injector.run(faults, seconds))


async def _judge(rig: Rig, customer: Customer) -> list[Found]:
    found = [each for each in await asyncio.gather(*(_left_open(customer, load) for load in customer.loads)) if each]
    for load in customer.loads:
        found += await prove(rig.fanout, load)
    return [*found, *await patiently(lambda: balance(rig.fanout))]


async def _left_open(customer: Customer, load: Load) -> Found | None:
    """Waits for a batch to close by itself; it may take its time on a busy machine, but it may not stand still."""
    moved = time.monotonic()
    settled = -1
    while not (status := await patiently(customer.batches[load.key].progress)).closed:
        if status.settled != settled:
            settled, moved = status.settled, time.monotonic()
        if time.monotonic() - moved > STILL_SECONDS:
            return Found(
                "left open", load.key, f"stood still for {STILL_SECONDS:g} s, {settled} of {status.total} settled"
            )
        await asyncio.sleep(0.25)
    return None


async def campaign(folder: Path, seeds: list[int], parallel: int, tell: Callable[[str], None]) -> list[Run]:
    """All runs, so many at once, each line told as its run ends; a run that cannot be judged is a violation as well."""
    waiting = iter(seeds)
    runs: list[Run] = []

    async def work(number: int) -> None:
        lane = Lane(folder / f"lane-{number}")
        await lane.start()
        try:
            for seed in waiting:
                run = await judged(run_once(lane, seed), seed)
                runs.append(run)
                tell(run.line)
        finally:
            await lane.kill()

    await asyncio.gather(*(work(number) for number in range(parallel)))
    return runs


async def judged(running: Awaitable[Run], seed: int) -> Run:
    """The run, also where the campaign itself stumbled over what it found."""
    try:
        return await running
    except Exception as error:
        return Run(seed, violations=[Found("wrong", "campaign", f"{type(error).__name__}: {error}")])


def summary(runs: list[Run]) -> dict[str, Any]:
    """The figures of a campaign."""
    violations = Counter(found.kind for run in runs for found in run.violations)
    return {
        "runs": len(runs),
        "batches": sum(run.batches for run in runs),
        "items": sum(run.items for run in runs),
        "faults": sum(run.faults.total() for run in runs),
        "seconds": round(sum(run.seconds for run in runs)),
        **{kind.replace(" ", "_"): violations[kind] for kind in KINDS},
        "bad_seeds": [run.seed for run in runs if run.violations],
    }
