"""The batches of a run: what is submitted, and what each item has to come to whatever happens."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Payloads = list[dict[str, Any]]


@dataclass(frozen=True)
class Load:
    """One batch to submit under `key`; `cancelled` if somebody is to cancel it."""

    handler: str
    key: str
    payloads: Payloads
    cancelled: bool = False


def short(rng: random.Random) -> Payloads:
    """Many items of a few milliseconds; ranges and settles are grouped."""
    return [{"number": number, "seconds": rng.uniform(0, 0.03)} for number in range(rng.randrange(300, 900))]


def slow(rng: random.Random) -> Payloads:
    """An activity an item."""
    return [{"number": number, "seconds": rng.uniform(0.3, 2.5)} for number in range(rng.randrange(15, 40))]


def flaky(rng: random.Random) -> Payloads:
    """Items that fail some times before they work."""
    return [
        {"number": number, "failures": rng.randrange(4), "seconds": rng.uniform(0, 0.1)}
        for number in range(rng.randrange(20, 60))
    ]


def failing(rng: random.Random) -> Payloads:
    """Some fail for good."""
    return [
        {"number": number, "hopeless": rng.random() < 0.2, "seconds": rng.uniform(0, 0.2)}
        for number in range(rng.randrange(30, 80))
    ]


def throttled(rng: random.Random) -> Payloads:
    """Some ask for a later time, once."""
    return [
        {"number": number, "waits": rng.random() < 0.5, "seconds": rng.uniform(0, 0.1)}
        for number in range(rng.randrange(20, 60))
    ]


def booked(rng: random.Random) -> Payloads:
    """Items that book into a table in the transaction that settles them."""
    return [
        {"number": number, "failures": rng.choice([0, 0, 0, 1]), "seconds": rng.uniform(0, 0.4)}
        for number in range(rng.randrange(30, 100))
    ]


def threads(rng: random.Random) -> Payloads:
    """Items that cannot be interrupted."""
    return [{"number": number, "seconds": rng.uniform(0.05, 0.6)} for number in range(rng.randrange(20, 60))]


def children(rng: random.Random) -> Payloads:
    """Child processes, some of which die under their item."""
    return [
        {"number": number, "dies": rng.random() < 0.3, "seconds": rng.uniform(0, 0.5)}
        for number in range(rng.randrange(3, 8))
    ]


LOADS: dict[str, tuple[str, Callable[[random.Random], Payloads], float]] = {
    "short": ("chaos.loop", short, 4),
    "slow": ("chaos.loop", slow, 4),
    "flaky": ("chaos.loop", flaky, 3),
    "failing": ("chaos.loop", failing, 3),
    "throttled": ("chaos.loop", throttled, 2),
    "ledger": ("chaos.ledger", booked, 4),
    "threads": ("chaos.thread", threads, 2),
    "children": ("chaos.child", children, 1),
}
"""Name: handler, what makes the payloads, and how often it is chosen."""


def choose_loads(rng: random.Random, batches: int, share: float) -> list[Load]:
    """Batches of different kinds, a share of their items; in half of the runs one of them is to be cancelled."""
    names = list(LOADS)
    chosen: list[str] = []
    for _ in range(batches):
        left = [name for name in names if name not in chosen]
        chosen += rng.choices(left, [LOADS[name][2] for name in left])
    victim = rng.choice(chosen) if rng.random() < 0.5 else None
    return [_load(name, rng, share, name == victim) for name in chosen]


def _load(name: str, rng: random.Random, share: float, cancelled: bool) -> Load:
    handler, make, _ = LOADS[name]
    payloads = make(rng)
    return Load(handler, name, payloads[: max(3, int(share * len(payloads)))], cancelled)
