"""The blocking socket under a connection: whose file its number is, and what goes with it."""

import socket
import threading
from typing import cast

import pytest

from ringmq.client.runtimes import runtime, socket_transport
from ringmq.client.runtimes.socket_transport import SocketTransport
from ringmq.client.runtimes.thread_loop import ThreadLoop


class HeldSocket:
    """A socket that sends when it is told to `go_on`; the server has hung up."""

    def __init__(self) -> None:
        self.sending, self.go_on = threading.Event(), threading.Event()
        self.said: list[str] = []

    def recv(self, size: int) -> bytes:
        assert self.sending.wait(60)
        return b""

    def fileno(self) -> int:
        return 7

    def write(self, number: int, data: bytes) -> int:
        """In the place of `os.write`."""
        assert number == 7
        self.sending.set()
        assert self.go_on.wait(60)
        self.said.append("sent")
        return len(data)

    def shutdown(self, how: int) -> None:
        self.said.append("shut down")

    def close(self) -> None:
        self.said.append("closed")


class Silent:
    """A protocol that only notes its end."""

    def __init__(self) -> None:
        self.is_lost = False

    def connection_lost(self, error: BaseException | None) -> None:
        self.is_lost = True


def test_a_socket_is_not_closed_under_a_thread_that_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, held, protocol = ThreadLoop("held"), HeldSocket(), Silent()
    monkeypatch.setattr(socket_transport, "os", held)
    transport = SocketTransport(loop, cast(socket.socket, held), protocol, None)

    def send() -> None:
        with loop.entered():
            transport.write(b"x")
            loop._run_soon()

    sender, receiver = threading.Thread(target=send), threading.Thread(target=transport.receive)
    for thread in (sender, receiver):
        thread.start()
    receiver.join(60)
    assert protocol.is_lost
    assert held.said == ["shut down"], "the number of a closed socket may be another file's at once"
    held.go_on.set()
    sender.join(60)
    assert held.said == ["shut down", "sent", "closed"]


def test_what_was_left_to_send_goes_with_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    loop = ThreadLoop("ended")
    ours, server = socket.socketpair()
    transport = SocketTransport(loop, ours, Silent(), None)
    with loop.entered():
        transport.write(b"handed to the client's own thread")
    server.close()
    transport.receive()
    loop.open()
    loop.run(runtime.sleep(0.01))
    loop.close()
    assert not [record.message for record in caplog.records]
