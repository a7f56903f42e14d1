"""Where a process listens: never on another database than the one that it works with."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from fanout import Settings
from fanout.devstack import Stack
from fanout.servers import ServerOptions, choose_servers

POOLED, DIRECT, OTHER = "postgresql://pooler/x", "postgresql://direct/x", "postgresql://other/x"
SETTINGS = Settings(database_url=SecretStr(POOLED), listen_url=SecretStr(DIRECT), home=Path("nowhere"))
AT_HOME = "127.0.0.1:7233"


def test_the_direct_address_belongs_to_the_database_of_the_environment() -> None:
    servers = choose_servers(SETTINGS, None, ServerOptions(address=AT_HOME))
    assert (servers.database_url, servers.listen_url) == (POOLED, DIRECT)
    without = SETTINGS.with_values({"listen_url": None})
    assert choose_servers(without, None, ServerOptions(address=AT_HOME)).listen_url == POOLED


@pytest.mark.parametrize(
    "options", [ServerOptions(database_url=OTHER, address=AT_HOME), ServerOptions(only_stack=True)]
)
def test_a_database_from_elsewhere_is_listened_to_itself(options: ServerOptions, stack: Stack) -> None:
    servers = choose_servers(SETTINGS, stack, options)
    assert servers.listen_url == servers.database_url != POOLED
    assert servers.direct_url is None
