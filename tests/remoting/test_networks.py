"""Lists of networks: the accepted entries, and the addresses that a list holds."""

import pytest

from ringmq.remoting.networks import NETWORKS_MAX, Networks, host_key, is_loopback, listens_beyond_loopback


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.7", ["10.0.0.7", "::ffff:10.0.0.7"], ["10.0.0.8", "::1", "10.0.0.7.evil", ""]),
        ("10.1.0.0/16", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "fd00::1"]),
        ("fd00::/8", ["fd12::9", "[fd12::9]"], ["fe80::1", "10.0.0.1"]),
        ("fe80::1", ["fe80::1%eth0"], ["fe80::2"]),
        ("10.0.0.7; 192.168.0.0/24 ;", ["10.0.0.7", "192.168.0.200"], ["192.168.1.1"]),
        ("::ffff:10.0.0.7", ["10.0.0.7"], ["10.0.0.8"]),
        ("0.0.0.0/0", ["8.8.8.8"], ["2001:db8::1"]),
    ],
)
def test_who_is_in_a_list(text: str, inside: list[str], outside: list[str]) -> None:
    networks = Networks.parse(text)
    assert [host for host in inside if not networks.names(host)] == []
    assert [host for host in outside if networks.names(host)] == []
    assert [networks.allows(host) for host in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


@pytest.mark.parametrize("text", ["", " ; ", ";"])
def test_an_empty_list_allows_all_and_names_none(text: str) -> None:
    networks = Networks.parse(text)
    assert not networks
    assert networks.allows("203.0.113.9")
    assert not networks.names("203.0.113.9")
    assert not networks.names("127.0.0.1")


@pytest.mark.parametrize("text", ["localhost", "10.0.0.7/8", "10.0.0.0/33", "10.0.0", "10.0.0.7,10.0.0.8", "fd00::/x"])
def test_what_is_refused_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        Networks.parse(text)


def test_the_number_of_networks_is_bounded() -> None:
    with pytest.raises(ValueError, match="257 networks are over 256"):
        Networks.parse(";".join(["10.0.0.1"] * (NETWORKS_MAX + 1)))


def test_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "[::1]"]))
    assert not any(map(is_loopback, ["10.0.0.1", "0.0.0.0", "::", "localhost", ""]))
    assert not any(map(listens_beyond_loopback, ["127.0.0.1", "::1", "localhost"]))
    assert all(map(listens_beyond_loopback, ["0.0.0.0", "::", "10.0.0.1", "broker-a.example"]))


def test_names_under_which_shares_of_hosts_count() -> None:
    assert host_key("::ffff:10.0.0.7") == host_key("10.0.0.7") == "10.0.0.7"
    assert host_key("2001:db8::1") == host_key("2001:db8::ffff:1") != host_key("2001:db8:0:1::1")
    assert host_key("fe80::1%eth0") == "fe80::/64"
    assert host_key("no address") == "no address"
