"""Listeners that every network may use."""

import pytest

from ringmq.remoting.endpoints import Endpoint, broker_endpoints, name_server_endpoints, public_endpoints


def broker(host: str, **lists: str) -> list[str]:
    given = {"admin": "", "ha": "", "http_networks": "", **lists}
    return [
        endpoint.warning for endpoint in public_endpoints(broker_endpoints(host, 10911, 10912, "0.0.0.0:5557", **given))
    ]


def test_each_open_door_says_how_to_shut_it() -> None:
    assert broker("0.0.0.0") == [
        "listener 0.0.0.0:10911 takes requests that change the broker from every network: set adminAddresses",
        "listener 0.0.0.0:10912 sends the log to every network: set haAllowedNetworks",
        "listener 0.0.0.0:5557 shows metrics and health to every network: set httpAllowedNetworks",
    ]
    found = public_endpoints(name_server_endpoints("::", 9876, admin="", brokers=""))
    assert [endpoint.warning for endpoint in found] == [
        "listener [::]:9876 takes requests that change the name server from every network: set adminAddresses",
        "listener [::]:9876 registers brokers of every network: set brokerAddresses",
    ]


def test_a_list_shuts_its_own_door() -> None:
    assert len(broker("0.0.0.0", admin="10.0.0.0/8")) == 2
    assert broker("0.0.0.0", admin="10.0.0.0/8", ha="10.0.0.7", http_networks="10.0.0.7") == []


@pytest.mark.parametrize(
    ("listener", "is_open"),
    [
        ("127.0.0.1:1", False),
        ("127.0.0.9:1", False),
        ("[::1]:1", False),
        ("localhost:1", False),
        ("10.0.0.7:1", True),
        ("[::]:1", True),
        ("broker.example:1", True),
    ],
)
def test_loopback_is_no_door(listener: str, is_open: bool) -> None:
    assert Endpoint(listener, "adminAddresses", "", "").is_open is is_open
