"""Listeners over a restart: found by address, given up when nobody wants them."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.broker.listening import listen
from ringmq.ipc.fd_store import FdStore
from ringmq.ipc.notify import ServiceManager
from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.server import NamesrvServer, start_listening
from tests.fake_service_manager import FakeServiceManager
from tests.waiting import TIMEOUT_S


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
    FdStore(manager, []).keep([first, second, other])
    fake.receive()
    assert len(fake.store) == 3, "each has a name of its own"
    restarted = FdStore(manager, [(name, socket.socket(fileno=os.dup(fd))) for name, fd in fake.store.items()])
    assert restarted.take("127.0.0.1", 0) is None, "any port is a new one"
    assert restarted.take("127.0.0.2", port) is None
    taken = [restarted.take("localhost", port), restarted.take("127.0.0.1", port)]
    assert all(taken)
    assert restarted.take("127.0.0.1", port) is None, "each once"
    rest = f"127.0.0.1:{other.getsockname()[1]}"
    assert restarted.close_rest() == [rest]
    restarted.keep([one for one in taken if one is not None])
    fake.receive()
    assert len(fake.store) == 2, "the one that nobody wanted is forgotten, the others are kept once"
    for one in (*taken, first, second, other):
        assert one is not None
        one.close()
    fake.close()


@pytest.fixture
def store_of_loopback(tmp_path: Path) -> Iterator[tuple[FdStore, FakeServiceManager, int]]:
    """What a start finds after a run on 127.0.0.1: the manager has the listener, too, and closes it when told to."""
    fake = FakeServiceManager(tmp_path)
    manager = ServiceManager(fake.environment)
    before = listening()
    FdStore(manager, []).keep([before])
    fake.receive()
    port = int(before.getsockname()[1])
    before.close()
    fd_store = FdStore(manager, [(name, socket.socket(fileno=os.dup(fd))) for name, fd in fake.store.items()])
    thread = threading.Thread(target=fake.receive, args=(TIMEOUT_S,))
    thread.start()
    yield fd_store, fake, port
    thread.join()
    assert not fake.store, "the manager has closed its own"
    fake.close()


def test_a_kept_listener_gives_way_when_the_address_widens(
    store_of_loopback: tuple[FdStore, FakeServiceManager, int],
) -> None:
    """bindAddress=127.0.0.1 -> 0.0.0.0, and `systemctl restart`."""
    fd_store, _, port = store_of_loopback
    with listen("0.0.0.0", port, fd_store) as listener:
        assert listener.getsockname() == ("0.0.0.0", port)
    assert fd_store.close_rest() == [f"127.0.0.1:{port}"], "told as one that is not wanted any more"


def test_a_name_servers_listener_gives_way_too(
    store_of_loopback: tuple[FdStore, FakeServiceManager, int],
) -> None:
    fd_store, _, port = store_of_loopback

    async def start() -> int:
        server = NamesrvServer(NamesrvConfig(bind_address="0.0.0.0", listen_port=port))
        try:
            return await start_listening(server, fd_store)
        finally:
            await server.close()

    assert asyncio.run(start()) == port


def test_what_is_no_listener_is_left_out(tmp_path: Path) -> None:
    pair = socket.socketpair()
    unbound = socket.socket()
    unbound.bind(("127.0.0.1", 0))
    port = unbound.getsockname()[1]
    fd_store = FdStore(ServiceManager({}), [("a", pair[0]), ("b", unbound)])
    assert fd_store.take("127.0.0.1", port) is None
    fd_store.close_rest()
    pair[1].close()
