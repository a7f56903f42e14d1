"""Submits no-op items from a generator, in a process of its own: `python -m benchmarks.submitter ITEMS`."""

import asyncio
import json
import sys
from dataclasses import asdict

from benchmarks.million import Submitted, memory_mb
from fanout import FanoutClient
from fanout.exits import leave


async def submit(items: int) -> Submitted:
    """Submits, and answers the batch's id with this process's peak of memory.

    The kernel's VmHWM and not `ru_maxrss`: that one also counts what the parent held when it started us.
    """
    async with FanoutClient.connect() as client:
        batch = await client.submit("bench.noop", (None for _ in range(items)))
    return Submitted(str(batch.batch_id), memory_mb()[1])


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(submit(int(sys.argv[1]))))))
    leave(0)
