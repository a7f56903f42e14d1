"""`serve`: the HTTP interface, for as long as the command runs."""

import asyncio
import socket
from contextlib import ExitStack, suppress
from importlib import import_module
from types import ModuleType
from typing import Annotated

import typer

from fanout.cli.session import Session

PORT = 8_080


async def serve(
    session: Session,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65_535, help="0 takes a free one.")] = PORT,
    fd: Annotated[
        int | None, typer.Option("--fd", metavar="N", min=3, help="An open socket to listen on instead.")
    ] = None,
) -> None:
    """Serves the HTTP interface until Ctrl-C, which lets requests that run come to their end.

    Without FANOUT_API_TOKEN it listens on loopback only. Its requests are logged with --log-level info.
    """
    # A signal that comes before it listens ends it as well as one that finds it at work.
    with suppress(asyncio.CancelledError, KeyboardInterrupt), ExitStack() as sockets:
        http = _load()
        found = http.listen(host, port, session.settings) if fd is None else [http.inherited(fd, session.settings)]
        listeners = [sockets.enter_context(each) for each in found]
        await _serve(session, http, host, listeners)


async def _serve(session: Session, http: ModuleType, host: str, listeners: list[socket.socket]) -> None:
    async with session.connect() as client:
        url = http.address_of(listeners[0])

        def announce() -> None:
            if session.output.as_json:
                session.output.emit({"url": url})
            else:
                session.output.show(url)

        server = http.make_server(client, host, session.settings, announce)
        await server.serve(listeners)


def _load() -> ModuleType:
    # Loaded here alone: every other command would pay half a second for a web framework that it does not need.
    return import_module("fanout.http.serving")
