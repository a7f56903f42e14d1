"""A port that one process has is told to no other."""

import socket

import pytest

from fanout.devstack import ports


def test_of_two_that_want_one_port_each_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with ports.listen(0) as first, ports.listen(port_of(first)) as second:
        assert port_of(second) not in (0, port_of(first))
    bind = ports._bind
    with socket.socket() as quicker:
        quicker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        quicker.bind((ports.HOST, 0))

        def overtaken(port: int) -> socket.socket:
            made = bind(port)
            quicker.listen()
            return made

        monkeypatch.setattr(ports, "_bind", overtaken)
        with ports.listen(port_of(quicker)) as slower:
            assert port_of(slower) not in (0, port_of(quicker))


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port
