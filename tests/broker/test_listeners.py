"""Listening sockets: one per reader on one address, and nobody else there."""

import socket

import pytest

from ringmq.broker.listening import listen, listener_per_reader, unreachable_note, unregistered_note
from ringmq.broker.start_error import StartError


def accepted(listener: socket.socket) -> int:
    """Connections that wait on the socket."""
    listener.setblocking(False)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_connections_are_spread_over_the_readers() -> None:
    listeners = listener_per_reader(listen("127.0.0.1", 0), 3)
    address = listeners[0].getsockname()
    assert {listener.getsockname() for listener in listeners} == {address}
    clients = [socket.create_connection(address) for _ in range(300)]
    counts = [accepted(listener) for listener in listeners]
    assert sum(counts) == 300
    assert min(counts) > 30
    for each in (*clients, *listeners):
        each.close()


def test_the_port_stays_refused_to_another_broker() -> None:
    listeners = listener_per_reader(listen("127.0.0.1", 0), 2)
    port = listeners[0].getsockname()[1]
    with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port}: .*ringmq doctor"):
        listen("127.0.0.1", port)
    for each in listeners:
        each.close()


@pytest.mark.parametrize(
    ("host", "namesrv_addr", "told"),
    [
        ("127.0.0.1", "", None),
        ("127.0.0.1", "127.0.0.1:9876;localhost:9877;[::1]:9878", None),
        ("10.0.0.7", "10.0.0.5:9876", None),
        ("127.0.0.1", "localhost:9876;10.0.0.5:9876", "10.0.0.5:9876"),
        ("::1", "mq-names:9876;[fd00::5]:9876", "mq-names:9876;[fd00::5]:9876"),
    ],
)
def test_who_sends_clients_of_other_hosts_to_this_one_alone_is_told(
    host: str, namesrv_addr: str, told: str | None
) -> None:
    note = unreachable_note(host, namesrv_addr)
    assert note == "" if told is None else f"name servers {told} send clients to" in note


def test_a_broker_without_a_name_server_says_that_no_client_finds_it() -> None:
    assert unregistered_note("127.0.0.1:9876") == ""
    assert "no client finds this broker: give --namesrv" in unregistered_note("")
