"""The interface of one deployment, called in the test's own process."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fanout.http import app
from tests.http.support import caller
from tests.support import Deployment


@pytest.fixture
async def api(fanout: Deployment) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app as it is mounted: whoever mounts it answers for who may call."""
    async with caller(app(fanout.client)) as client:
        yield client
