"""What handlers wait for that a test lets go on when it has seen what it wanted to see."""

import asyncio
from pathlib import Path


async def until_there(file: Path) -> None:
    """Returns once the test has made that file."""
    while not file.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)
