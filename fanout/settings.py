"""All settings, read from the environment once, at the edge of each process."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import PydanticCustomError

from fanout.errors import InvalidSetting
from fanout.names import DEPLOYMENT_NAME, Names
from fanout.points import Fault

PREFIX = "FANOUT_"
EXAMPLE_HANDLERS = ("examples.documents.handlers", "examples.documents.demo_handlers")
"""What a worker on the dev stack runs when nobody names modules."""


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _armed(value: object) -> object:
    split = _split(value)
    return tuple(Fault.parse(part) for part in split) if isinstance(value, str) and isinstance(split, tuple) else value


def _sendable(token: SecretStr) -> SecretStr:
    """Without what stands around it, as the last line end of a file; whatever no header can bring is refused."""
    found = token.get_secret_value().strip()
    if not re.fullmatch("[!-~]+", found):
        raise PydanticCustomError("token", "takes visible ASCII characters alone, without spaces: a header brings it")
    return SecretStr(found)


Listed = Annotated[tuple[str, ...], BeforeValidator(_split)]
Token = Annotated[SecretStr, AfterValidator(_sendable)]
Faults = Annotated[tuple[Fault, ...], BeforeValidator(_armed)]


class Settings(BaseModel):
    """What a Fanout process needs to know; each field is the environment variable `FANOUT_<FIELD>`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: SecretStr | None = Field(None, description="PostgreSQL to use. Defaults to a running dev stack's.")
    listen_url: SecretStr | None = Field(
        None, description="The same database without a transaction pooler, for LISTEN. Defaults to FANOUT_DATABASE_URL."
    )
    name: str = Field(
        "fanout",
        pattern=DEPLOYMENT_NAME.pattern,
        max_length=12,
        description="Prefix of everything on a server: two deployments can share one namespace.",
    )
    home: Path = Field(Path(".fanout"), description="Folder of the dev stack's servers and their data.")
    handlers: Listed = Field((), description="Modules with handlers that a worker imports, comma-separated.")
    concurrency: int = Field(50, ge=1, le=10_000, description="Items that one worker runs at once.")
    grace_seconds: float = Field(
        30, ge=0, le=86_400, description="How long running items may go on once a worker is told to stop."
    )
    heartbeat_seconds: float = Field(
        10,
        ge=2,
        le=3_600,
        description="After how long a silent worker's items are taken over. Heartbeats go out more often.",
    )
    sweep_every_seconds: float = Field(
        60, ge=1, le=86_400, description="How often the sweeper looks for batches that nobody works on."
    )
    stall_after_seconds: float = Field(
        7_200,
        ge=1,
        le=3_153_600_000,
        description="After how long without progress a batch that runs is told to be slow, once.",
    )
    retention_days: float = Field(30, ge=0, le=36_500, description="After how many days a closed batch may be purged.")
    workflow_cache: int = Field(
        1_000,
        ge=0,
        description="Workflows that a worker keeps in memory; others are replayed when they go on.",
    )
    max_payload_bytes: int = Field(
        1_048_576, ge=1, le=64 * 1_048_576, description="Largest payload or result, as UTF-8 JSON."
    )
    http_allow: Listed = Field(
        (),
        description="Hosts that the built-in handler http.request may call, comma-separated. Defaults to none.",
    )
    api_token: Token | None = Field(
        None,
        description="What callers of the HTTP interface have to bring. Without it `serve` listens on loopback only.",
    )
    http_max_body_bytes: int = Field(
        1_073_741_824, ge=1, description="Largest body of a submit over HTTP, as JSON Lines; as JSON 16 MiB at most."
    )
    http_max_items: int = Field(5_000_000, ge=1, le=2_147_483_647, description="Most items of one submit over HTTP.")
    http_min_bytes_per_second: int = Field(
        1_000, ge=1, description="Least pace of a submit's body over HTTP, over half a minute; a slower one is refused."
    )
    metrics_address: str | None = Field(
        None,
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):\d{1,5}$",
        description="HOST:PORT at which a worker serves /metrics, /health and /ready. Defaults to none.",
    )
    ui_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="Temporal's Web UI, which the dashboard links to. Defaults to the dev stack's, where that is used.",
    )
    postgres_bin: Path | None = Field(
        None, description="Folder of PostgreSQL's programs for the dev stack. Defaults to a package's."
    )
    temporal_bin: Path | None = Field(
        None, description="The `temporal` program for the dev stack. Defaults to a package's."
    )
    fault_points: Faults = Field(
        (), description="For tests alone: points at which this process is killed, stalls or loses an answer."
    )

    @property
    def names(self) -> Names:
        """The names that this deployment uses on its servers."""
        return Names(self.name)

    @property
    def metrics_place(self) -> tuple[str, int] | None:
        """Host and port of `metrics_address`."""
        if self.metrics_address is None:
            return None
        host, _, port = self.metrics_address.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def beat_seconds(self) -> float:
        """How often heartbeats go out: often enough that two may be lost before the timeout."""
        return min(2.0, self.heartbeat_seconds / 3)

    @property
    def sweep_limit_seconds(self) -> float:
        """How long one pass of the sweeper may take; what it leaves undone is the next one's."""
        return max(30.0, 5 * self.sweep_every_seconds)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads `FANOUT_*`; empty values count as unset. Raises InvalidSetting with the variable's name."""
        found = os.environ if environment is None else environment
        values = {
            field: found[variable]
            for field in cls.model_fields
            if found.get(variable := f"{PREFIX}{field.upper()}", "") != ""
        }
        return cls._checked(values)

    def with_values(self, values: Mapping[str, object]) -> Self:
        """A copy with some fields replaced, checked again."""
        return self._checked({**dict(self), **values})

    @classmethod
    def _checked(cls, values: Mapping[str, object]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidSetting(f"{PREFIX}{str(first['loc'][0]).upper()}", first["msg"]) from None


def process_environment() -> dict[str, str]:
    """This process's environment, for its children."""
    return dict(os.environ)


def hide_password(url: str) -> str:
    """A database URL that may be printed, wherever in it a password stands."""
    return re.sub(r"(password=)[^&\s]*", r"\1***", re.sub(r"(?<=://)([^:@/]*):.*@", r"\1:***@", url))


def traces_exporter() -> str | None:
    """The exporter of traces that OpenTelemetry's own variables ask for, by the name of its entry point; None if none.

    The SDK reads the others, such as the endpoint and the name of the service, by itself.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    asked = "otlp" if any(os.environ.get(name) for name in endpoints) else "none"
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").partition(",")[0].strip() or asked
    if named != "otlp":
        return None if named == "none" else named
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((found for name in protocols if (found := os.environ.get(name))), "http/protobuf")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def temporal_variable() -> str | None:
    """The environment variable that names Temporal's address, if one does."""
    return "TEMPORAL_ADDRESS" if os.environ.get("TEMPORAL_ADDRESS") else None
