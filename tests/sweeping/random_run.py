"""Random faults, to runs and to workers, while the sweeper works: whatever it does to a batch must have had a cause."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from temporalio.service import RPCError, RPCStatusCode

from fanout import BatchHandle
from fanout.store.audit import count_recorded_twice, install_audit
from tests.support import Deployment, WorkerProcess
from tests.sweeping.support import closed, request_deletion, start_worker, terminate, told

QUICK = {"FANOUT_SWEEP_EVERY_SECONDS": "1", "FANOUT_STALL_AFTER_SECONDS": "1"}
BATCHES = 4
ITEMS = 24
FAULTS = 8
MOST_LOSSES = 3
"""So often a batch is brought on; what is lost more often is given up, which is another test's."""


@dataclass(eq=False)
class Story:
    """One batch, and what was done to it."""

    batch: BatchHandle
    losses: int = 0
    ended: bool = False
    paused: bool = False


@dataclass
class RandomRun:
    """One run: faults drawn from a seed, then everything is let go on, and each batch is judged by its own story."""

    fanout: Deployment
    rng: random.Random
    stories: list[Story] = field(default_factory=list)
    workers: list[WorkerProcess] = field(default_factory=list)
    kills: int = 0

    async def run(self) -> None:
        """Raises an AssertionError where the sweeper did what it had no cause for, or left a batch open."""
        await install_audit(self.fanout.pool)
        self.workers = [await self._start() for _ in range(2)]
        for _ in range(BATCHES):
            self.stories.append(Story(await self.fanout.client.submit("swept.work", [0.25] * ITEMS)))
        faults: list[Callable[[Story], Awaitable[None]]]
        faults = [self._kill, self._pause, self._resume, self._lose, self._terminate, self._end_as_operator]
        for _ in range(FAULTS):
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            await self.rng.choice(faults)(self.rng.choice(self.stories))
        for story in self.stories:
            if story.paused:
                await self._resume(story)
            await self._judge(story)

    async def _start(self) -> WorkerProcess:
        return await start_worker(self.fanout, "--concurrency", "4", handlers="tests.handlers.swept", **QUICK)

    async def _kill(self, story: Story) -> None:
        number = self.rng.randrange(len(self.workers))
        self.workers[number].kill()
        self.kills += 1
        self.workers[number] = await self._start()

    async def _pause(self, story: Story) -> None:
        if not story.ended:
            await story.batch.pause()
            story.paused = True

    async def _resume(self, story: Story) -> None:
        # A resume starts what has no run: the batch of which an operator has terminated it is the sweeper's.
        if not story.ended:
            await story.batch.resume()
        story.paused = False

    async def _lose(self, story: Story) -> None:
        """Its run is deleted, as with a namespace that is wiped."""
        if await self._may_lose(story):
            await self._ended_before(request_deletion(self.fanout, story.batch))

    async def _terminate(self, story: Story) -> None:
        """The server ends its run at a limit."""
        if await self._may_lose(story):
            await self._ended_before(terminate(self.fanout, story.batch, "at a limit", identity="history-service"))

    async def _may_lose(self, story: Story) -> bool:
        if story.ended or story.losses == MOST_LOSSES or not await self._runs(story):
            return False
        story.losses += 1
        return True

    async def _end_as_operator(self, story: Story) -> None:
        if not story.ended and not story.paused and await self._runs(story):
            story.ended = not await self._ended_before(terminate(self.fanout, story.batch, "enough"))

    async def _ended_before(self, attack: Awaitable[None]) -> bool:
        """Whether the run was gone by itself, or by an earlier deletion, before it could be ended."""
        try:
            await attack
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return True
        return False

    async def _runs(self, story: Story) -> bool:
        row = await story.batch.read()
        try:
            seen = await self.fanout.temporal.get_workflow_handle(row.workflow_id).describe()
        except RPCError:
            return False
        return not row.closed and seen.status is not None and seen.status.name == "RUNNING"

    async def _judge(self, story: Story) -> None:
        batch = story.batch
        status = await closed(batch, 90)
        swept = await told(self.fanout, batch, "swept")
        revivals = sum(event["action"] == "revived" for event in swept)
        assert revivals <= story.losses, "revived without a loss"
        assert status.epoch == 1 + revivals
        if status.status == "cancelled":
            assert (story.ended, status.reason) == (True, "enough")
        else:
            assert (status.status, status.completed) == ("completed", ITEMS)
        assert {event["action"] for event in swept} <= {"started", "revived", *(["cancelled"] if story.ended else [])}
        async for row in batch.results():
            assert self._starts(batch, row.seq) <= 1 + min(row.crashes, self.kills), "started again without a death"
        assert await count_recorded_twice(self.fanout.pool, batch.batch_id) == 0
        assert await self.fanout.client.store.read_violations(batch.batch_id) == []

    def _starts(self, batch: BatchHandle, seq: int) -> int:
        file = self.fanout.folder / f"{batch.batch_id}-{seq}"
        return len(file.read_text().splitlines()) if file.exists() else 0


async def run_at_random(fanout: Deployment, seed: int) -> None:
    """One run of that seed."""
    print(f"SEED={seed}")
    await RandomRun(fanout, random.Random(seed)).run()
