"""The stack's PostgreSQL: a data folder made once, and the server on it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from fanout.devstack.accounts import Account, choose_account
from fanout.devstack.children import Child
from fanout.devstack.ports import HOST, free_ports
from fanout.errors import StackFailed

_USER = "fanout"
_DATABASE = "fanout"
_CREATE_DATABASE = f"""
select 'create database {_DATABASE}'
where not exists (select from pg_database where datname = '{_DATABASE}') \\gexec
"""
_INITDB = ("--encoding=UTF8", "--locale=C.UTF-8", "--auth=scram-sha-256", "--no-sync", "--no-instructions")
_INITDB_SECONDS = 60
# On the command line, where nothing that is stored in the data folder overrules them.
_REACHABLE_BY = ("-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories=")
CLUSTER_NAME = "fanout-dev-stack"
"""What such a server calls itself: it may lose its data with the machine, and is not to be warned of it."""
# In the data folder, so that `alter system` overrules them. Without fsync a killed process still loses
# nothing, as the kernel has every write; a crash of the machine may spoil the folder, which a dev stack can
# afford.
_SETTINGS = """
max_connections = 300
shared_buffers = 256MB
max_wal_size = 2GB
synchronous_commit = on
fsync = off
log_min_messages = warning
log_timezone = UTC
timezone = UTC
"""


class Postgres:
    """PostgreSQL on `<home>/postgres`, listening on 127.0.0.1 alone, with a password of its own."""

    name = "PostgreSQL"

    def __init__(self, home: Path, programs: Path, inherited: int) -> None:
        self._home = home
        self._programs = programs
        self._inherited = inherited
        self._data = home / "postgres"
        self._log = home / "postgres.log"
        self.ports = [0]

    @property
    def url(self) -> str:
        """The database's address with its password; the server has no TLS, so no client has to ask for it."""
        return f"postgresql://{_USER}:{self._password()}@{HOST}:{self.ports[0]}/{_DATABASE}?sslmode=disable"

    def start(self, preferred_ports: list[int]) -> Child:
        """Starts the server; makes the data folder first if there is none."""
        account = choose_account(self._programs / "postgres", self._home)
        if not self._data.exists():
            self._make_data_folder(account)
        account.own(self._data)
        # Nobody of the last run is left, or its lock would be held: the process id in it is another's by now.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        self.ports = free_ports(preferred_ports, 1)
        server = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.ports[0])]
        return Child(
            [*account.prefix, *server, *_REACHABLE_BY, "-c", f"cluster_name={CLUSTER_NAME}"],
            self._log,
            inherited=self._inherited,
            death_signal=signal.SIGQUIT,
            stop_signal=signal.SIGINT,
        )

    def answers(self, child: Child) -> bool:
        """Whether the server takes our password and has the database, which is created if missing."""
        try:
            socket.create_connection((HOST, self.ports[0]), timeout=1).close()
            client = [str(self._programs / "psql"), "-XAtqw", "-h", HOST, "-p", str(self.ports[0])]
            answer = subprocess.run(
                [*client, "-U", _USER, "-d", "postgres", "-v", "ON_ERROR_STOP=1"],
                input=_CREATE_DATABASE.encode(),
                env={"PGPASSWORD": self._password(), "PGREQUIREAUTH": "scram-sha-256"},
                capture_output=True,
                timeout=5,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return answer.returncode == 0

    def _password(self) -> str:
        return (self._data / "password").read_text()

    def _make_data_folder(self, account: Account) -> None:
        """Makes the folder under another name, so that a half-made one is never taken for whole."""
        draft = self._home / "postgres.new"
        secret = self._home / "postgres.password.new"
        shutil.rmtree(draft, ignore_errors=True)
        secret.unlink(missing_ok=True)
        draft.mkdir(mode=0o700)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24))
        account.own(draft)
        account.own(secret)
        made_by = [
            str(self._programs / "initdb"),
            "-D",
            str(draft),
            "-U",
            _USER,
            f"--pwfile={secret}",
            *_INITDB,
        ]
        maker = Child(
            [*account.prefix, *made_by],
            self._log,
            inherited=self._inherited,
            death_signal=signal.SIGKILL,
            stop_signal=signal.SIGKILL,
        )
        if maker.wait(_INITDB_SECONDS) != 0:
            raise StackFailed(self._home, f"initdb failed:\n{maker.words}")
        with (draft / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        secret.replace(draft / "password")
        draft.replace(self._data)
