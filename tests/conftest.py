"""Real stacks that many tests share, one database and one namespace for each test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import asyncpg
import hypothesis
import pytest

from fanout import Settings
from fanout.devstack import Stack, use
from fanout.store import MIGRATIONS, connect_pool, migrate
from tests.support import ROOT, Deployment, deployment

SHORT_HEARTBEAT_SECONDS = 3.0
STEADY_HEARTBEAT_SECONDS = 15.0
LONG = (
    "batches",
    "cancelling",
    "chaos_short",
    "crashes",
    "dashboard",
    "database_outages",
    "demo",
    "fault_points",
    "field_cases",
    "healing",
    "metrics",
    "poison",
    "random",
    "temporal_outages",
    "transactions",
    "workflows",
)
"""Files of tests that take many seconds each: mixed with the others, and all begun before the last of those."""
DEPLOYMENTS = 50
"""How many share a stack: each second a Temporal server goes through its metrics of every namespace that it ever had.

After 400 of them, which have long been at rest, that was half a core.
"""
NUMBER = pytest.StashKey[int]()
TEMPLATE_LOCK = 7_391_002
hypothesis.settings.register_profile(
    # How long an example takes tells of the machine.
    *("fanout", hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]))
)
hypothesis.settings.load_profile("fanout")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mixes long tests, which mostly wait, with short ones, so that no session waits for a few of them at its end."""
    long = [item for item in items if item.path.stem.removeprefix("test_") in LONG]
    short = [item for item in items if item.path.stem.removeprefix("test_") not in LONG]
    between = len(short) * 2 // 3 // len(long) if long else 0
    mixed: list[pytest.Item] = []
    for number, item in enumerate(long):
        mixed += [item, *short[number * between : (number + 1) * between]]
    items[:] = mixed + short[len(long) * between :]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Numbers the stack that each test gets."""
    deployments = 0
    for item in session.items:
        item.stash[NUMBER] = deployments // DEPLOYMENTS
        deployments += "fanout" in getattr(item, "fixturenames", ())


class Stacks:
    """The stacks of this process's tests, one after another; test processes that are equally far share one."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._number: int | None = None
        self._stack: Stack | None = None

    def get(self, number: int) -> Stack:
        """The stack of that number. Any other is let go, and ends with its last user."""
        if self._stack is None or number != self._number:
            self._held.close()
            self._stack = self._held.enter_context(use(Settings(home=ROOT / ".fanout" / "tests" / str(number))))
            self._number = number
        return self._stack


@pytest.fixture(scope="session")
def stacks() -> Iterator[Stacks]:
    """Lets the last stack go at the end of the session."""
    with ExitStack() as held:
        yield Stacks(held)


@pytest.fixture
def stack(request: pytest.FixtureRequest, stacks: Stacks) -> Stack:
    """A stack that this test shares with many others."""
    return stacks.get(request.node.stash[NUMBER])


@pytest.fixture
async def template(stack: Stack) -> str:
    """A migrated database to make the tests' databases from; made once for each state of the schema."""
    return await make_template(stack)


async def make_template(stack: Stack) -> str:
    """The name of the migrated database, which any number of processes may ask for at once."""
    digest = sha256("".join(migration.sql for migration in MIGRATIONS).encode()).hexdigest()[:16]
    name = f"template_{digest}"
    connection = await asyncpg.connect(stack.database_url)
    try:
        await connection.execute("select pg_advisory_lock($1)", TEMPLATE_LOCK)
        if await connection.fetchval("select true from pg_database where datname = $1", name):
            return name
        # Under another name until it is whole: a killed session must not leave half a template behind.
        await connection.execute(f'drop database if exists "{name}_new"')
        await connection.execute(f'create database "{name}_new" template template0')
        pool = await connect_pool(f"{stack.database_url.rpartition('/')[0]}/{name}_new", purpose="template", size=1)
        await migrate(pool)
        await pool.close()
        await connection.execute(f'alter database "{name}_new" rename to "{name}"')
        return name
    finally:
        await connection.close()


@pytest.fixture
async def fanout(
    request: pytest.FixtureRequest, stack: Stack, template: str, tmp_path: Path
) -> AsyncIterator[Deployment]:
    """A deployment without a worker yet, whose heartbeat timeout is short unless the test is marked as `steady`."""
    steady = request.node.get_closest_marker("steady") is not None
    seconds = STEADY_HEARTBEAT_SECONDS if steady else SHORT_HEARTBEAT_SECONDS
    async with deployment(stack, template, tmp_path, heartbeat_seconds=seconds) as made:
        yield made
