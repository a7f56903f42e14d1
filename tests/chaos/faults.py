"""What is done to a run: each fault is chosen, timed and sized by the run's seed, and undoes itself."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fanout.devstack.postgres import Postgres
from fanout.devstack.temporal import Temporal
from fanout.points import FaultPoint
from tests.chaos.customer import Customer, patiently
from tests.chaos.rig import Post, Rig
from tests.faults.proxy import Line
from tests.faults.servers import OwnServer

STEPS = 3
"""Clock steps a run, at most."""
STEP_SECONDS = 15.0
POINTS = [
    *(FaultPoint.ITEM_ENDED, FaultPoint.CLAIM_COMMITTED, FaultPoint.COMPLETE_COMMITTED, FaultPoint.FAIL_COMMITTED),
    *(FaultPoint.RELEASE_COMMITTED, FaultPoint.WORKER_REFRESHED, FaultPoint.OPEN_COMMITTED, FaultPoint.CLOSE_COMMITTED),
    FaultPoint.TRANSACTION_COMMITTED,
]
TERMINATE = """select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and application_name like 'fanout %' and pid <> pg_backend_pid()"""


def choose_points(rng: random.Random) -> str:
    """A fault point for a worker, or none."""
    if rng.random() < 0.5:
        return ""
    mishap = rng.choice(["kill", "lose", f"stall:{rng.uniform(0.5, 6):.1f}"])
    return f"{rng.choice(POINTS)}={mishap}@{rng.randrange(1, 6)}"


@dataclass
class Injector:
    """Does faults to a rig; `done` counts them by kind."""

    rng: random.Random
    rig: Rig
    customer: Customer
    done: Counter[str] = field(default_factory=Counter)
    _turns: dict[object, asyncio.Lock] = field(default_factory=dict)

    async def run(self, faults: int, seconds: float) -> None:
        """So many faults, spread over that time; returns once the last of them is over."""
        kinds: dict[str, tuple[float, Callable[[], Awaitable[bool]]]] = {
            "worker killed": (3, self.kill_worker),
            "worker frozen": (2, self.freeze_worker),
            "worker told to stop": (2, self.stop_worker),
            "postgres killed": (2, lambda: self.kill_server(self.rig.lane.postgres)),
            "temporal killed": (2, lambda: self.kill_server(self.rig.lane.temporal)),
            "backends terminated": (2, self.terminate_backends),
            "line cut": (2, lambda: self.disturb(Line.cut)),
            "line stalled": (2, lambda: self.disturb(Line.stall)),
            "answers dropped": (2, lambda: self.disturb(Line.drop_replies)),
            "connections reset": (1, lambda: self.disturb(Line.reset_all)),
            "batch paused and resumed": (2, self.pause),
            "failed items retried": (2, self.retry),
            "worker's clock stepped": (2, self.step_worker),
            "database's clock stepped": (2, self.step_database),
        }
        moments = sorted(self.rng.uniform(0.5, seconds) for _ in range(faults))
        names = self.rng.choices(list(kinds), [weight for weight, _ in kinds.values()], k=faults)
        plan = [
            asyncio.create_task(self._at(at, name, kinds[name][1])) for at, name in zip(moments, names, strict=True)
        ]
        victim = next((load.key for load in self.customer.loads if load.cancelled), None)
        if victim is not None:
            plan.append(asyncio.create_task(self._at(self.rng.uniform(1, seconds), "batch cancelled", self.cancel)))
        await asyncio.gather(*plan)

    async def _at(self, moment: float, name: str, fault: Callable[[], Awaitable[bool]]) -> None:
        await asyncio.sleep(moment)
        if await fault():
            self.done[name] += 1

    def _alone(self, thing: object) -> asyncio.Lock:
        """One fault at a time to one thing: each undoes only itself."""
        return self._turns.setdefault(id(thing), asyncio.Lock())

    def _post(self) -> Post:
        return self.rng.choice(self.rig.posts)

    async def kill_worker(self) -> bool:
        return self._post().send(signal.SIGKILL)

    async def freeze_worker(self) -> bool:
        """Beyond its lease, most of the time."""
        post, seconds = self._post(), self.rng.uniform(1, 7)
        async with self._alone(post):
            process = post.process
            if not post.send(signal.SIGSTOP):
                return False
            await asyncio.sleep(seconds)
            return post.process is process and post.send(signal.SIGCONT)

    async def stop_worker(self) -> bool:
        return self._post().send(signal.SIGTERM)

    async def kill_server(self, server: OwnServer[Postgres] | OwnServer[Temporal]) -> bool:
        seconds = self.rng.uniform(0, 4)
        async with self._alone(server):
            await server.kill()
            await asyncio.sleep(seconds)
            await server.start()
        return True

    async def terminate_backends(self) -> bool:
        return bool(await patiently(lambda: self.rig.fanout.pool.fetchval(TERMINATE)))

    async def disturb(self, disturbance: Callable[[Line], None]) -> bool:
        post, seconds = self._post(), self.rng.uniform(0.5, 6)
        line = self.rng.choice([post.postgres, post.temporal])
        async with self._alone(line):
            disturbance(line)
            await asyncio.sleep(seconds)
            line.restore()
        return True

    def _key(self) -> str | None:
        """A batch that is there and that nobody is to cancel."""
        loads = [load for load in self.customer.loads if not load.cancelled]
        keys = [load.key for load in loads if load.key in self.customer.batches]
        return self.rng.choice(keys) if keys else None

    async def pause(self) -> bool:
        key, seconds = self._key(), self.rng.uniform(0, 3)
        if key is None:
            return False
        async with self._alone(key):
            await self.customer.pause_and_resume(key, seconds)
        return True

    async def retry(self) -> bool:
        keys = [key for key in ("failing", "flaky") if key in self.customer.batches]
        key = self.rng.choice(keys) if keys else None
        if key is None:
            return False
        await self.customer.retry(key)
        return True

    async def cancel(self) -> bool:
        key = next(load.key for load in self.customer.loads if load.cancelled)
        while key not in self.customer.batches:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await self.customer.cancel(key)
        return True

    async def step_worker(self) -> bool:
        post = self._post()
        return post.clocked and self._step(post.clock.step)

    async def step_database(self) -> bool:
        return self._step(self.rig.lane.clock.step)

    def _step(self, step: Callable[[float], None]) -> bool:
        if self.rig.lane.clock.library is None or self.rig.steps == STEPS:
            return False
        self.rig.steps += 1
        step(self.rng.uniform(-STEP_SECONDS, STEP_SECONDS))
        return True
