"""docker-compose.yml and the Dockerfile, checked without Docker: no image can be pulled where tests run."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fanout.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent
COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"
DEPLOY_FILES = sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file())

Service = dict[str, Any]

COMPOSE: dict[str, Any] = YAML(typ="safe").load(COMPOSE_FILE)
SERVICES: dict[str, Service] = COMPOSE["services"]
DEFAULTS: dict[str, str] = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE_FILE.read_text()))

each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def with_defaults(text: str) -> str:
    """The text as compose sees it where no variable is set."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)


def instructions(keyword: str) -> list[list[str]]:
    """The arguments of each such line of the Dockerfile."""
    lines = DOCKERFILE.read_text().replace("\\\n", " ").splitlines()
    return [line.split()[1:] for line in lines if line.split()[:1] == [keyword]]


def mounts(service: Service) -> list[list[str]]:
    """The parts of each mount: source, target and perhaps a mode."""
    return [with_defaults(mount).split(":") for mount in service.get("volumes", [])]


def is_exact(image: str) -> bool:
    """Whether the tag is a full version: two numbers for PostgreSQL, three for all others."""
    version = r"\d+\.\d+" if image.startswith("postgres:") else r"\d+\.\d+\.\d+"
    return re.search(rf":{version}(-[a-z0-9.]+)*(@sha256:[0-9a-f]{{64}})?$", image) is not None


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_docker_compose_accepts_the_file() -> None:
    program = shutil.which("docker-compose")
    if program is None and not os.environ.get("CI"):
        pytest.skip("docker-compose is not installed (apt-get install docker-compose)")
    assert program is not None, "CI has to install docker-compose"
    answer = run(program, "--file", str(COMPOSE_FILE), "config", "--quiet")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_current_compose_schema_accepts_the_file() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    answer = run(str(program), "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE))
    assert answer.returncode == 0, answer.stdout


def test_every_image_is_pinned_to_an_exact_version() -> None:
    images = {service["image"] for service in SERVICES.values() if "image" in service}
    images |= {arguments[0] for arguments in instructions("FROM")}
    assert images
    assert {image for image in images if not is_exact(image)} == set()


@pytest.mark.parametrize("image", ["postgres", "postgres:18", "postgres:latest", "python:3.11-slim", "a/b:main"])
def test_a_moving_tag_would_be_noticed(image: str) -> None:
    assert not is_exact(image)


def test_temporals_images_are_the_supported_ones_and_of_one_version() -> None:
    images = [service.get("image", "") for service in SERVICES.values()]
    assert not any("auto-setup" in image for image in images)
    tags = {image.split(":")[1] for image in images if re.match(r"temporalio/(server|admin-tools):", image)}
    assert len(tags) == 1


@each_service
def test_a_service_has_an_image_or_is_built(name: str) -> None:
    service = SERVICES[name]
    assert ("image" in service) != ("build" in service)
    assert service.get("build", ".") == "."


@each_service
def test_what_a_service_waits_for_exists_and_can_happen(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        needed = SERVICES[other]
        if how["condition"] == "service_healthy":
            assert "healthcheck" in needed, f"{name} would wait for ever: {other} has no health check"
        else:
            assert how["condition"] == "service_completed_successfully"
            assert "restart" not in needed, f"{name} would wait for ever: {other} is started again at its end"


@each_service
def test_every_named_volume_network_and_secret_exists(name: str) -> None:
    service = SERVICES[name]
    named = {source for source, *_ in mounts(service) if not source.startswith((".", "/"))}
    assert named <= set(COMPOSE.get("volumes", {}))
    assert set(service.get("networks", [])) <= set(COMPOSE.get("networks", {}))
    secrets = {item if isinstance(item, str) else item["source"] for item in service.get("secrets", [])}
    assert secrets <= set(COMPOSE.get("secrets", {}))


@each_service
def test_every_mounted_file_exists_and_is_read_only(name: str) -> None:
    targets = {}
    for source, target, *mode in mounts(SERVICES[name]):
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == ["ro"]
            targets[target] = ROOT / source
    service = SERVICES[name]
    words = [
        *service.get("entrypoint", []),
        *service.get("command", []),
        *service.get("environment", {}).values(),
    ]
    for word in words:
        for target, folder in targets.items():
            if word.startswith(f"{target}/"):
                assert (folder / Path(word).relative_to(target)).is_file(), word


def test_every_volume_is_used() -> None:
    used = {source for service in SERVICES.values() for source, *_ in mounts(service)}
    assert set(COMPOSE["volumes"]) <= used


@each_service
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d*:\d+", with_defaults(port)), port


def test_each_host_port_is_used_once() -> None:
    given = [with_defaults(port).split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    # Of those without one each container gets a free one.
    ports = [port for port in given if port]
    assert len(ports) == len(set(ports))


def test_every_fanout_variable_is_a_setting() -> None:
    texts = [path.read_text() for path in (COMPOSE_FILE, DOCKERFILE, *DEPLOY_FILES)]
    used = {word.removeprefix(PREFIX).lower() for text in texts for word in re.findall(rf"\b{PREFIX}[A-Z_]+\b", text)}
    assert used
    assert used <= set(Settings.model_fields)


def test_the_workers_settings_are_valid() -> None:
    environment = {key: with_defaults(value) for key, value in SERVICES["worker"]["environment"].items()}
    assert Settings.from_environment(environment).handlers


def test_the_metrics_of_any_number_of_workers_are_reached_from_this_machine_and_from_within() -> None:
    worker = SERVICES["worker"]
    address = Settings.from_environment({"FANOUT_METRICS_ADDRESS": worker["environment"]["FANOUT_METRICS_ADDRESS"]})
    assert address.metrics_place == ("0.0.0.0", 9464)
    assert worker["ports"] == ["127.0.0.1::9464"]
    assert "names: [worker], type: A, port: 9464" in (ROOT / "docs/docker.md").read_text()


def test_a_drain_ends_before_docker_kills_the_worker() -> None:
    worker = SERVICES["worker"]
    grace = re.fullmatch(r"(\d+)s", worker["stop_grace_period"])
    assert grace is not None
    assert int(grace.group(1)) >= float(worker["environment"]["FANOUT_GRACE_SECONDS"]) + 5
    assert instructions("STOPSIGNAL") == [["SIGTERM"]]


def test_the_workers_default_handlers_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for module in DEFAULTS["FANOUT_HANDLERS"].split(","):
        assert find_spec(module) is not None, module


def test_every_file_that_the_image_copies_exists_and_reaches_the_builder() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source.rstrip("/") for arguments in instructions("COPY") for source in arguments[:-1]}
    assert copied == let_in
    assert [name for name in sorted(copied) if not (ROOT / name).exists()] == []


def test_the_image_installs_known_extras_under_the_constraints_and_is_not_root() -> None:
    (install,) = [arguments for arguments in instructions("RUN") if arguments[:2] == ["pip", "install"]]
    assert install[install.index("-c") + 1] == "constraints.txt"
    extras = re.search(r"\.\[([a-z,]+)\]", " ".join(install))
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.group(1).split(",")) == {"cli", "http", "process", "documents", "otel"} <= set(known)
    assert instructions("USER") == [["fanout"]]


@pytest.mark.parametrize("script", [path for path in DEPLOY_FILES if path.suffix == ".sh"], ids=lambda path: path.name)
def test_a_shell_script_can_be_parsed(script: Path) -> None:
    answer = run("sh", "-n", str(script))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "set -eu" in script.read_text()


def test_temporal_honours_fairness_keys() -> None:
    settings = YAML(typ="safe").load(ROOT / "deploy/temporal/dynamicconfig.yaml")
    assert settings["matching.enableFairness"] == [{"value": True}]


def test_deploy_holds_no_secret() -> None:
    passwords = {value for name, value in DEFAULTS.items() if "PASSWORD" in name}
    assert len(passwords) == 3
    literal = re.compile(r"(?i)(password|pwd|secret|token|api_?key)['\"]?\s*[:=]\s*['\"]?[a-z0-9]")
    for path in DEPLOY_FILES:
        text = path.read_text()
        assert not [word for word in passwords if word in text], path
        assert not literal.search(re.sub(r":'\w+'", "", text)), path


def test_the_docs_name_every_variable_and_its_default_password() -> None:
    page = (ROOT / "docs/docker.md").read_text()
    assert [name for name in sorted(DEFAULTS) if f"`{name}`" not in page] == []
    assert [value for name, value in DEFAULTS.items() if "PASSWORD" in name and f"`{value}`" not in page] == []


def test_a_variable_has_the_same_default_everywhere() -> None:
    found = re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE_FILE.read_text())
    assert set(found) == set(DEFAULTS.items())
    assert re.findall(r"\$\{?\w+", COMPOSE_FILE.read_text()) == [f"${{{name}" for name, _ in found]
