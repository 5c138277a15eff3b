"""Addresses as text: what listens on all addresses is asked on loopback, IPv6 stands in brackets."""

import pytest

from ringmq.client.connections.connection import split_address
from ringmq.remoting.address import address_text, host_from_here


@pytest.mark.parametrize(
    ("listening", "asked"),
    [
        ("0.0.0.0", "127.0.0.1:10911"),
        ("::", "[::1]:10911"),
        ("fe80::1", "[fe80::1]:10911"),
        ("10.0.0.5", "10.0.0.5:10911"),
    ],
)
def test_a_listener_is_asked_where_this_machine_reaches_it(listening: str, asked: str) -> None:
    text = address_text(host_from_here(listening), 10911)
    assert text == asked
    assert split_address(text) == (host_from_here(listening), 10911)
