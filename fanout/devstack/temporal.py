"""The stack's Temporal server: the dev server of Temporal's command line, on a file."""

import http.client
import json
import os
import signal
from pathlib import Path

from fanout.devstack.children import Child
from fanout.devstack.ports import HOST, free_ports, listens
from fanout.names import (
    SEARCH_ATTRIBUTE_FAILED,
    SEARCH_ATTRIBUTE_HANDLER,
    SEARCH_ATTRIBUTE_KEY,
    SEARCH_ATTRIBUTE_STATUS,
    SEARCH_ATTRIBUTE_TOTAL,
)

_SEARCH_ATTRIBUTES = {
    SEARCH_ATTRIBUTE_HANDLER: "Keyword",
    SEARCH_ATTRIBUTE_KEY: "Keyword",
    SEARCH_ATTRIBUTE_STATUS: "Keyword",
    SEARCH_ATTRIBUTE_TOTAL: "Int",
    SEARCH_ATTRIBUTE_FAILED: "Int",
}
# Measured on 400 activities at once: 17 s with the program's own pragmas, which sync every write to disk, 3 s
# with these. A killed process still loses nothing, as the kernel has every write.
_PRAGMAS = ("journal_mode=WAL", "synchronous=OFF")


class Temporal:
    """`temporal server start-dev` on `<home>/temporal.db`, with its Web UI, listening on 127.0.0.1 alone."""

    name = "Temporal"

    def __init__(self, home: Path, program: Path, inherited: int) -> None:
        self._home = home
        self._program = program
        self._inherited = inherited
        self.ports = [0, 0, 0, 0]

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self.ports[0]}"

    @property
    def ui_url(self) -> str:
        """Where its Web UI is."""
        return f"http://{HOST}:{self.ports[1]}"

    def start(self, preferred_ports: list[int]) -> Child:
        """Starts the server."""
        self.ports = free_ports(preferred_ports, 4)
        named = zip(("--port", "--ui-port", "--http-port", "--metrics-port"), self.ports, strict=True)
        return Child(
            [
                # It needs a user's name, which not every account in a container has.
                *("env", "USER=fanout", f"HOME={self._home}"),
                *(str(self._program), "server", "start-dev", "--ip", HOST, "--log-level", "error"),
                # Nothing of the user's own Temporal settings is to reach this server, or has to be readable.
                *("--env-file", os.devnull, "--disable-config-file", "--disable-config-env"),
                *("--db-filename", str(self._home / "temporal.db")),
                *(f"--sqlite-pragma={pragma}" for pragma in _PRAGMAS),
                *("--dynamic-config-value", "matching.enableFairness=true"),
                *(word for name, port in named for word in (name, str(port))),
                *(f"--search-attribute={name}={kind}" for name, kind in _SEARCH_ATTRIBUTES.items()),
            ],
            self._home / "temporal.log",
            inherited=self._inherited,
            death_signal=signal.SIGKILL,
            stop_signal=signal.SIGTERM,
        )

    def answers(self, child: Child) -> bool:
        """Whether this very server serves the namespace `default` and knows our search attributes."""
        if not all(listens(child.pid, port) for port in self.ports[:3]):
            return False
        connection = http.client.HTTPConnection(HOST, self.ports[2], timeout=2)
        try:
            connection.request("GET", "/api/v1/namespaces/default/search-attributes")
            answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()
        return set(_SEARCH_ATTRIBUTES) <= set(answer.get("customAttributes", ()))
