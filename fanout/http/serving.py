"""A server of our own for the interface: the sockets first, then the app, then a drain."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fanout.client import FanoutClient
from fanout.errors import InvalidRequest, InvalidSetting
from fanout.http.app import app
from fanout.http.bodies import BodyLimits
from fanout.http.guard import LOOPBACK, Rules
from fanout.http.problems import Refusal, answer
from fanout.http.sessions import Sessions
from fanout.settings import Settings


class Server(uvicorn.Server):
    """Ends quietly on SIGTERM and SIGINT once all requests are answered; a second one ends it at once."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announces itself once it answers, and once a signal is a drain."""
        await super().startup(sockets)
        self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's own, which raises the signal once more at the end: a drain is a good end."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the drain, the second ends it."""
        self.force_exit = self.should_exit
        self.should_exit = True


class Ending:
    """An app whose requests are told so where the end of the grace cuts them off: they are to be sent again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; what has begun to be answered cannot be told anything more."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if begun:
                raise
            detail = "the server ends, and the request was not at its end"
            refusal = Refusal(503, "shutting_down", detail, {"Connection": "close"})
            await answer(refusal)(scope, receive, send)


def listen(host: str, port: int, settings: Settings) -> list[socket.socket]:
    """Sockets on every address that `host` has; raises InvalidRequest where one is taken, or open to others unasked."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        # Of a name that cannot be one nobody is asked: that is an error of its encoding.
        cause = getattr(error, "strerror", None) or error
        raise InvalidRequest(f"--host {host!r} is no address of this machine: {cause}") from None
    addresses = sorted({(family, str(place[0])) for family, _, _, _, place in found})
    for _, address in addresses:
        _check_reach(address, f"--host {host}", settings)
    sockets: list[socket.socket] = []
    for family, address in addresses:
        sockets.append(_bind(family, address, sockets[0].getsockname()[1] if sockets else port))
    return sockets


def inherited(fd: int, settings: Settings) -> socket.socket:
    """The socket that another process has opened; raises InvalidRequest where it is none, or open to others unasked."""
    try:
        made = socket.socket(fileno=fd)
    except OSError as error:
        raise InvalidRequest(f"--fd {fd} is no socket: {error.strerror}") from None
    try:
        if made.family not in (socket.AF_INET, socket.AF_INET6) or not _is_listening(made):
            raise InvalidRequest(f"--fd {fd} is no socket that listens on a port")
        _check_reach(made.getsockname()[0], f"--fd {fd}", settings)
    except InvalidRequest:
        # It is not ours to close.
        made.detach()
        raise
    return made


def _is_listening(made: socket.socket) -> bool:
    return made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def _check_reach(address: str, option: str, settings: Settings) -> None:
    if settings.api_token is None and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise InvalidSetting("FANOUT_API_TOKEN", f"is not set, and {option} is open to other machines")


def _bind(family: int, address: str, port: int) -> socket.socket:
    made = socket.socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        # Now, not when the servers are reached: of two that start at once one is refused.
        made.listen(2_048)
    except OSError as error:
        made.close()
        raise InvalidRequest(f"port {port} on {address} cannot be had: {error.strerror}") from None
    return made


def address_of(listener: socket.socket) -> str:
    """The URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(
    client: FanoutClient, host: str, settings: Settings, announce: Callable[[], None] = lambda: None
) -> Server:
    """The server for `client`, by the settings' token and limits; it calls `announce` once it can be stopped."""
    token = settings.api_token
    sessions = None if token is None else Sessions(token.get_secret_value())
    rules = Rules(sessions, hosts=tuple(dict.fromkeys((*LOOPBACK, host.lower()))))
    limits = BodyLimits(settings.http_max_body_bytes, settings.http_max_items, settings.http_min_bytes_per_second)
    config = uvicorn.Config(
        Ending(app(client, limits, rules)),
        lifespan="off",
        log_config=None,
        server_header=False,
        # Given here, as uvicorn would read the environment.
        forwarded_allow_ips="127.0.0.1",
        timeout_graceful_shutdown=round(settings.grace_seconds),
    )
    return Server(config, announce)
