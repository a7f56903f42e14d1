"""A migrated database of its own for each test of the store."""

from collections.abc import AsyncIterator

import pytest

from fanout.devstack import Stack
from tests.store.support import database


@pytest.fixture
async def url(stack: Stack, template: str) -> AsyncIterator[str]:
    """The address of a migrated database for this test alone."""
    async with database(stack, template) as made:
        yield made
