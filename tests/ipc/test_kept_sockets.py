"""Listeners over a restart: found by address, given up when nobody wants them."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.listening import listen
from ringmq.ipc.kept_sockets import KeptSockets
from ringmq.ipc.notify import ServiceManager
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.server import NamesrvServer, start_listening
from tests.fake_service_manager import FakeServiceManager


def listening(port: int = 0, *, shared: bool = False) -> socket.socket:
    listener = socket.socket()
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def test_listeners_are_taken_by_address(tmp_path: Path) -> None:
    fake = FakeServiceManager(tmp_path)
    manager = ServiceManager(fake.environment)
    first = listening(shared=True)
    port = int(first.getsockname()[1])
    second, other = listening(port, shared=True), listening()
    KeptSockets(manager, []).keep([first, second, other])
    fake.hear()
    assert len(fake.store) == 3, "each has a name of its own"
    restarted = KeptSockets(manager, [(name, socket.socket(fileno=os.dup(fd))) for name, fd in fake.store.items()])
    assert restarted.take("127.0.0.1", 0) is None, "any port is a new one"
    assert restarted.take("127.0.0.2", port) is None
    taken = [restarted.take("localhost", port), restarted.take("127.0.0.1", port)]
    assert all(taken)
    assert restarted.take("127.0.0.1", port) is None, "each once"
    rest = f"127.0.0.1:{other.getsockname()[1]}"
    assert restarted.close_rest() == [rest]
    restarted.keep([one for one in taken if one is not None])
    fake.hear()
    assert len(fake.store) == 2, "the one that nobody wanted is forgotten, the others are kept once"
    for one in (*taken, first, second, other):
        assert one is not None
        one.close()
    fake.close()


@pytest.fixture
def kept_on_loopback(tmp_path: Path) -> Iterator[tuple[KeptSockets, FakeServiceManager, int]]:
    """What a start finds after a run on 127.0.0.1: the manager has the listener, too, and closes it when told to."""
    fake = FakeServiceManager(tmp_path)
    manager = ServiceManager(fake.environment)
    before = listening()
    KeptSockets(manager, []).keep([before])
    fake.hear()
    port = int(before.getsockname()[1])
    before.close()
    kept = KeptSockets(manager, [(name, socket.socket(fileno=os.dup(fd))) for name, fd in fake.store.items()])
    thread = threading.Thread(target=fake.hear, args=(10.0,))
    thread.start()
    yield kept, fake, port
    thread.join()
    assert not fake.store, "the manager has closed its own"
    fake.close()


def test_a_kept_listener_gives_way_when_the_address_widens(
    kept_on_loopback: tuple[KeptSockets, FakeServiceManager, int],
) -> None:
    """bindAddress=127.0.0.1 -> 0.0.0.0, and `systemctl restart`."""
    kept, _, port = kept_on_loopback
    with listen("0.0.0.0", port, kept) as listener:
        assert listener.getsockname() == ("0.0.0.0", port)
    assert kept.close_rest() == [f"127.0.0.1:{port}"], "told as one that is not wanted any more"


def test_a_name_servers_listener_gives_way_too(
    kept_on_loopback: tuple[KeptSockets, FakeServiceManager, int],
) -> None:
    kept, _, port = kept_on_loopback

    async def start() -> int:
        server = NamesrvServer(NamesrvConfig(bind_address="0.0.0.0", listen_port=port))
        try:
            return await start_listening(server, kept)
        finally:
            await server.close()

    assert asyncio.run(start()) == port


def test_what_is_no_listener_is_left_out(tmp_path: Path) -> None:
    pair = socket.socketpair()
    unbound = socket.socket()
    unbound.bind(("127.0.0.1", 0))
    port = unbound.getsockname()[1]
    kept = KeptSockets(ServiceManager({}), [("a", pair[0]), ("b", unbound)])
    assert kept.take("127.0.0.1", port) is None
    kept.close_rest()
    pair[1].close()
