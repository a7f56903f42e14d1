"""What a command works with: its options, its settings, its output, and its connection."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from uuid import UUID

from temporalio.service import RPCError

from fanout.cli.options import GlobalOptions
from fanout.cli.output import Output
from fanout.client import FanoutClient
from fanout.devstack import join
from fanout.errors import ServerUnreachable
from fanout.servers import Servers, choose_servers
from fanout.settings import Settings, hide_password
from fanout.store import OUTAGE
from fanout.tracing import set_up_tracing


@dataclass
class Session:
    """One run of one command."""

    options: GlobalOptions
    settings: Settings
    output: Output
    goes_on: UUID | None = None
    """The batch that goes on when this command is interrupted."""
    chosen: Servers | None = None
    """The servers of the last `connect`."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[FanoutClient]:
        """A client of the chosen servers, which are named on stderr; a dev stack stays up for the block.

        Raises ServerUnreachable, also for a server that goes away meanwhile.
        """
        tracing = set_up_tracing()
        with self.servers() as servers:
            async with FanoutClient.connect(self.settings, servers=servers, tracing=tracing) as client:
                try:
                    yield client
                finally:
                    await tracing.flush()

    @contextmanager
    def servers(self) -> Iterator[Servers]:
        """The chosen servers, as `connect` uses them, for a command with connections of its own."""
        with join(self.settings) as stack:
            servers = choose_servers(self.settings, stack, self.options.servers)
            self.output.note(*servers.lines)
            self.chosen = servers
            with reaching(servers):
                yield servers


@contextmanager
def reaching(servers: Servers) -> Iterator[None]:
    """Turns the loss of a server inside the block into ServerUnreachable."""
    try:
        yield
    except OUTAGE as error:
        cause = str(error) or type(error).__name__
        url = hide_password(servers.database_url)
        raise ServerUnreachable("PostgreSQL", url, servers.database_chosen_by, cause) from error
    except RPCError as error:
        cause = error.message or error.status.name
        raise ServerUnreachable(
            "Temporal", str(servers.temporal["target_host"]), servers.temporal_chosen_by, cause
        ) from error
