"""One browser for the session; servers and visitors for each test, who leave before the servers end."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.dashboard.browsing import Serving, Visiting, chromium, servers, visitors
from tests.support import Deployment


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the session's browser takes orders."""
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
async def serve(fanout: Deployment) -> AsyncIterator[Serving]:
    """Starts servers of the test's deployment."""
    async with servers(fanout) as made:
        yield made


@pytest.fixture
async def visit(endpoint: str, serve: Serving) -> AsyncIterator[Visiting]:
    """Makes visitors of the dashboard."""
    async with visitors(endpoint) as made:
        yield made
