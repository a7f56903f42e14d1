"""Which servers a process uses, and which setting chose each: options, then the environment, then the dev stack."""

import os
from dataclasses import dataclass
from typing import Any

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from fanout.devstack import Stack
from fanout.errors import InvalidSetting, NoServer, ServerUnreachable
from fanout.settings import Settings, hide_password, temporal_variable

DATABASE_VARIABLE = "FANOUT_DATABASE_URL"


@dataclass(frozen=True)
class ServerOptions:
    """What a caller names itself; None leaves the choice to the environment."""

    database_url: str | None = None
    address: str | None = None
    namespace: str | None = None
    profile: str | None = None
    only_stack: bool = False
    """Ignore the environment and every profile file: demo, tests and benchmarks never touch a real server."""


@dataclass(frozen=True)
class Servers:
    """The chosen servers; `temporal` holds the arguments of `Client.connect`."""

    database_url: str
    database_chosen_by: str
    temporal: dict[str, Any]
    temporal_chosen_by: str
    direct_url: str | None = None
    """The database without a pooler in between, where it has another address."""
    ui_url: str | None = None
    """Temporal's Web UI, where it is known."""

    @property
    def listen_url(self) -> str:
        """Where to LISTEN."""
        return self.direct_url or self.database_url

    @property
    def lines(self) -> list[str]:
        """One line a server, for people: the address without its password, and the setting that chose it."""
        namespace = self.temporal.get("namespace", "default")
        return [
            f"PostgreSQL {hide_password(self.database_url)} (chosen by {self.database_chosen_by})",
            f"Temporal {self.temporal['target_host']}, namespace {namespace} (chosen by {self.temporal_chosen_by})",
        ]

    async def connect_temporal(self, **options: Any) -> Client:
        """A client with Fanout's data converter, and `options` of `Client.connect`; raises ServerUnreachable."""
        given = {**self.temporal, **options, "data_converter": pydantic_data_converter}
        try:
            client = await Client.connect(**given)
            await _refuse_missing_namespace(client, self.temporal_chosen_by)
            return client
        except (RuntimeError, OSError, ValueError) as error:
            raise ServerUnreachable(
                "Temporal", str(self.temporal["target_host"]), self.temporal_chosen_by, str(error)
            ) from error


async def _refuse_missing_namespace(client: Client, chosen_by: str) -> None:
    """Raises InvalidSetting; a server that may not tell is taken at its word that the namespace is there."""
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            address = client.service_client.config.target_host
            reason = f"Temporal at {address} (chosen by {chosen_by}) has no namespace {client.namespace!r}"
            raise InvalidSetting("TEMPORAL_NAMESPACE", reason) from None


def choose_servers(settings: Settings, stack: Stack | None, options: ServerOptions = ServerOptions()) -> Servers:
    """Chooses PostgreSQL and Temporal, each independently. Raises ServerUnreachable where nothing names one."""
    database_url, database_chosen_by = _choose_database(settings, stack, options)
    temporal, temporal_chosen_by = _choose_temporal(settings, stack, options)
    # It is the other address of that database, and of no other that an option or the dev stack may have named.
    direct = settings.listen_url if database_chosen_by == DATABASE_VARIABLE else None
    direct_url = None if direct is None else direct.get_secret_value()
    on_stack = stack is not None and temporal["target_host"] == stack.temporal_address
    ui_url = stack.ui_url if stack is not None and on_stack else settings.ui_url
    return Servers(database_url, database_chosen_by, temporal, temporal_chosen_by, direct_url, ui_url)


def _choose_database(settings: Settings, stack: Stack | None, options: ServerOptions) -> tuple[str, str]:
    if options.database_url is not None:
        return options.database_url, "--database-url"
    if settings.database_url is not None and not options.only_stack:
        return settings.database_url.get_secret_value(), DATABASE_VARIABLE
    if stack is not None:
        return stack.database_url, f"the dev stack in {stack.home}"
    raise NoServer("PostgreSQL", DATABASE_VARIABLE, settings.home)


def _choose_temporal(settings: Settings, stack: Stack | None, options: ServerOptions) -> tuple[dict[str, Any], str]:
    try:
        config: dict[str, Any] = dict(
            ClientConfig.load_client_connect_config(
                profile=options.profile,
                config_file=os.devnull if options.only_stack else None,
                disable_env=options.only_stack,
            )
        )
    except RuntimeError as error:
        raise InvalidSetting("Temporal's configuration", str(error)) from None
    if options.namespace is not None:
        config["namespace"] = options.namespace
    if options.address is not None:
        return {**config, "target_host": options.address}, "--address"
    if "target_host" in config:
        return (
            config,
            temporal_variable() or f"profile {options.profile or 'default'} of Temporal's profile file",
        )
    if stack is not None:
        return {**config, "target_host": stack.temporal_address}, f"the dev stack in {stack.home}"
    raise NoServer("Temporal", "TEMPORAL_ADDRESS", settings.home)
