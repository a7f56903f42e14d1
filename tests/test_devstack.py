"""The dev stack, with real servers in folders of their own and real signals."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from glob import glob
from pathlib import Path

import asyncpg
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from fanout.devstack import Stack, StackFailed, accounts, join, postgres, running, use
from fanout.devstack.locks import SERVERS, USERS, locked, try_lock
from fanout.devstack.postgres import Postgres
from fanout.devstack.programs import find_programs
from fanout.errors import InvalidSetting, MissingExtra
from fanout.settings import Settings

ROOT = Path(__file__).parents[1]
USER = """
import subprocess, sys
from glob import glob
from pathlib import Path
from fanout.devstack import join, use
from fanout.settings import Settings
settings = Settings(home=Path(sys.argv[1]))
with {"use": use, "join": join}[sys.argv[2]](settings) as stack:
    if "with-child" in sys.argv:
        child = subprocess.Popen(["sleep", "120"], close_fds=False, stdout=subprocess.DEVNULL)
        print(child.pid, flush=True)
    print(stack.supervisor_pid, flush=True)
    sys.stdin.read()
"""


class User:
    """A process that uses a folder's stack until it is killed or let go."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home), *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def number(self) -> int:
        assert self.process.stdout
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def let_go(self) -> None:
        self.process.communicate("")
        assert self.process.returncode == 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder whose servers are all gone at the end of the test."""
    folder = tmp_path / "stack"
    yield folder
    if folder.exists():
        with locked(folder / SERVERS, patience_seconds=60):
            pass


@pytest.fixture
def start_user(home: Path) -> Iterator[Callable[..., User]]:
    with ExitStack() as ending:

        def start(*arguments: str) -> User:
            user = User(home, *(arguments or ("use",)))
            ending.callback(user.kill)
            return user

        yield start


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def family(pid: int) -> set[int]:
    """The process and all that descend from it."""
    known = parents()
    members = {pid}
    while added := {child for child, parent in known.items() if parent in members} - members:
        members |= added
    return members


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def server(supervisor: int, program: str) -> int:
    [pid] = [pid for pid, parent in parents().items() if parent == supervisor and program in command(pid)]
    return pid


async def assert_both_answer(stack: Stack) -> None:
    connection = await asyncpg.connect(stack.database_url)
    assert await connection.fetchval("select current_database()") == "fanout"
    await connection.close()
    client = await Client.connect(stack.temporal_address)
    await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))


async def test_two_that_start_at_once_share_one_stack(home: Path, start_user: Callable[..., User]) -> None:
    first, second = start_user(), start_user()
    assert first.number() == second.number()
    stack = running(Settings(home=home))
    assert stack
    await assert_both_answer(stack)


async def test_the_stack_lives_as_long_as_its_last_user(home: Path, start_user: Callable[..., User]) -> None:
    first = start_user()
    supervisor = first.number()
    second = start_user("join")
    assert second.number() == supervisor
    processes = family(supervisor)
    assert len(processes) > 3
    first.kill()
    with join(Settings(home=home)) as stack:
        assert stack
        await assert_both_answer(stack)
    second.kill()
    until(lambda: not any(map(is_alive, processes)))
    assert not (home / "stack.json").exists()
    assert running(Settings(home=home)) is None


def test_a_child_of_a_user_does_not_count_as_one(start_user: Callable[..., User]) -> None:
    user = start_user("use", "with-child")
    child, supervisor = user.number(), user.number()
    try:
        user.kill()
        until(lambda: not is_alive(supervisor))
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


async def test_who_comes_while_it_ends_gets_a_new_one(home: Path, start_user: Callable[..., User]) -> None:
    user = start_user()
    supervisor = user.number()

    def is_ending() -> bool:
        descriptor = try_lock(home / USERS, shared=True)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None or not is_alive(supervisor)

    user.kill()
    until(is_ending)
    with use(Settings(home=home)) as stack:
        assert stack.supervisor_pid != supervisor
        await assert_both_answer(stack)


async def test_data_and_addresses_survive_a_restart(home: Path) -> None:
    settings = Settings(home=home)
    with use(settings) as first:
        connection = await asyncpg.connect(first.database_url)
        await connection.execute("create table kept as select 42 as answer")
        await connection.close()
        client = await Client.connect(first.temporal_address)
        run = await client.start_workflow("Nobody", id="kept", task_queue="nobody")
    until(lambda: not is_alive(first.supervisor_pid))
    with use(settings) as second:
        assert second.supervisor_pid != first.supervisor_pid
        assert second.database_url == first.database_url
        connection = await asyncpg.connect(second.database_url)
        assert await connection.fetchval("select answer from kept") == 42
        await connection.close()
        client = await Client.connect(second.temporal_address)
        assert (await client.get_workflow_handle("kept").describe()).run_id == run.first_execution_run_id


async def test_a_killed_supervisor_takes_its_servers_along(home: Path) -> None:
    settings = Settings(home=home)
    with use(settings) as first:
        connection = await asyncpg.connect(first.database_url)
        await connection.execute("create table kept as select 42 as answer")
        processes = family(first.supervisor_pid)
        os.kill(first.supervisor_pid, signal.SIGKILL)
        until(lambda: running(settings) is None)
        with use(settings) as second:
            assert not any(map(is_alive, processes))
            assert second.supervisor_pid != first.supervisor_pid
            await assert_both_answer(second)
            again = await asyncpg.connect(second.database_url)
            assert await again.fetchval("select answer from kept") == 42
            await again.close()
        connection.terminate()


@pytest.mark.parametrize("program", ["postgres", "temporal"])
async def test_a_dead_server_takes_the_other_along(home: Path, program: str) -> None:
    settings = Settings(home=home)
    with use(settings) as first:
        processes = family(first.supervisor_pid)
        os.kill(server(first.supervisor_pid, f"/bin/{program}"), signal.SIGKILL)
        until(lambda: not any(map(is_alive, processes)))
        with use(settings) as second:
            await assert_both_answer(second)
    assert "ended with -9" in (home / "supervisor.log").read_text()


async def test_a_folder_that_is_gone_ends_its_servers(home: Path) -> None:
    with use(Settings(home=home)) as first:
        os.rename(home, home.with_name("gone"))
        with use(Settings(home=home)) as second:
            await assert_both_answer(second)
            until(lambda: not is_alive(first.supervisor_pid))
            await assert_both_answer(second)


async def test_only_the_owner_gets_in(home: Path) -> None:
    with use(Settings(home=home)) as stack:
        for name in ("stack.json", "temporal.db", "postgres/password"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
        assert json.loads((home / "stack.json").read_text())["database_url"] == stack.database_url
        assert stack.database_url not in repr(stack)
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(stack.database_url, password="another")
        assert listeners(family(stack.supervisor_pid)) == {"0100007F"}


def listeners(pids: set[int]) -> set[str]:
    """The addresses, as the kernel writes them, that the processes listen on; none of one that has ended."""
    sockets = {os.path.basename(os.path.realpath(link)) for pid in pids for link in glob(f"/proc/{pid}/fd/*")}
    lines = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


async def test_a_new_server_knows_our_search_attributes_at_once(home: Path) -> None:
    attributes = TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), "word")
            for name in ("FanoutHandler", "FanoutKey", "FanoutStatus")
        ]
        + [SearchAttributePair(SearchAttributeKey.for_int(name), 3) for name in ("FanoutTotal", "FanoutFailed")]
    )
    with use(Settings(home=home)) as stack:
        client = await Client.connect(stack.temporal_address)
        run = await client.start_workflow("Nobody", id="a", task_queue="q", search_attributes=attributes)
        assert (await run.describe()).typed_search_attributes.updated(*attributes) == attributes


async def test_the_servers_are_set_up_for_many_workers_and_fair_queues(home: Path) -> None:
    with use(Settings(home=home)) as stack:
        connection = await asyncpg.connect(stack.database_url)
        names = ("max_connections", "shared_buffers", "server_encoding", "lc_messages", "TimeZone")
        shown = [await connection.fetchval("select current_setting($1)", name) for name in names]
        await connection.close()
        assert shown == ["300", "256MB", "UTF8", "C.UTF-8", "UTC"]
        assert "matching.enableFairness=true" in command(server(stack.supervisor_pid, "/bin/temporal"))


def test_join_starts_and_creates_nothing(home: Path) -> None:
    settings = Settings(home=home)
    with join(settings) as stack:
        assert stack is None
    assert running(settings) is None
    assert not home.exists()


def what_the_sdk_reads(environment: dict[str, str]) -> str:
    script = "from temporalio.envconfig import ClientConfig; print(ClientConfig.load_client_connect_config())"
    return subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)


def test_children_of_a_stack_see_no_other_server(tmp_path: Path) -> None:
    profile = tmp_path / "config" / "temporalio" / "temporal.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('[profile.default]\naddress = "production:7233"\napi_key = "secret"\n')
    base = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "FANOUT_CONCURRENCY": "7",
    }
    real = {"FANOUT_DATABASE_URL": "postgresql://real/fanout", "FANOUT_LISTEN_URL": "postgresql://real/fanout"}
    real |= {"FANOUT_UI_URL": "https://real"}
    real |= {"TEMPORAL_ADDRESS": "real:7233", "TEMPORAL_PROFILE": "default", "PGPASSWORD": "secret"}
    assert "production:7233" in what_the_sdk_reads(base), "the profile is one that the SDK finds"
    stack = Stack("postgresql://here/fanout", "127.0.0.1:1", "http://127.0.0.1:2", tmp_path, 3)
    environment = stack.environment(base | real)
    assert environment == base | {
        "FANOUT_DATABASE_URL": "postgresql://here/fanout",
        "TEMPORAL_ADDRESS": "127.0.0.1:1",
        "FANOUT_UI_URL": "http://127.0.0.1:2",
        "TEMPORAL_CONFIG_FILE": os.devnull,
    }
    assert what_the_sdk_reads(environment) == "{'target_host': '127.0.0.1:1'}\n"


def test_a_server_that_does_not_start_is_named_with_its_words(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "temporal"
    broken.write_text("#!/bin/sh\necho these are its words >&2\nexit 7\n")
    broken.chmod(0o755)
    words = r"Temporal ended with 7:\nthese are its words$"
    with pytest.raises(StackFailed, match=words), use(Settings(home=home, temporal_bin=broken)):
        pytest.fail("it started")
    assert not (home / "stack.json").exists()
    with use(Settings(home=home)) as stack:
        assert running(Settings(home=home)) == stack


def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSetting, match="FANOUT_POSTGRES_BIN"):
        find_programs(Settings(postgres_bin=tmp_path))
    with pytest.raises(InvalidSetting, match="FANOUT_TEMPORAL_BIN"):
        find_programs(Settings(temporal_bin=tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"temporal-fanout\[dev\]"):
        find_programs(Settings())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to be somebody else")
def test_root_runs_postgres_as_each_account_that_it_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = find_programs(Settings()).postgres_bin
    # Not in pytest's own folder, which only root may enter.
    with tempfile.TemporaryDirectory() as name, locked(Path(name) / SERVERS) as inherited:
        folder = Path(name)
        folder.chmod(0o755)
        usable = [each for each in accounts.accounts() if each.can_use(programs / "postgres", folder)]
        assert usable
        for account in (*usable, usable[0]):
            monkeypatch.setattr(postgres, "choose_account", lambda *_, account=account: account)
            database = Postgres(folder, programs, inherited)
            child = database.start([])
            try:
                until(partial(database.answers, child))
                assert Path(f"/proc/{child.pid}").stat().st_uid == account.owner
            finally:
                child.ask_to_stop()
                assert child.wait(10) == 0


def test_a_program_that_no_account_can_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackFailed, match=r"can start .*/postgres, and neither"):
        accounts.choose_account(tmp_path / "postgres", tmp_path)


LEAVE = "import sys; from fanout.exits import leave; print('a last word'); sys.stderr.write('another'); leave(7)"


def test_leaving_writes_out_the_last_words() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVE], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "a last word\n", "another")


def test_leaving_through_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    # Without PYTHONUNBUFFERED, which would have `print` itself meet the closed pipe.
    done = subprocess.run(
        [sys.executable, "-E", "-c", LEAVE], stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (7, b"another")
