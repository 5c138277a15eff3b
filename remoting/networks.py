"""Lists of networks in properties (`adminAddresses`, `haAllowedNetworks`, `httpAllowedNetworks`) and their tests.

A list has two tests, which differ for an empty list. `allows` decides about connections: an empty list allows every
peer, as in stock RocketMQ. `names` decides about rights that an operator gives: an empty list names no peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

ACCEPTED = "addresses or networks joined by ; (10.0.0.7;10.1.0.0/16;fd00::/8)"
"""The accepted form of a list, for error messages."""
NETWORKS_MAX = 256


@dataclass(frozen=True, slots=True)
class Networks:
    """A parsed list. Host names are rejected: an access rule must not depend on a name server."""

    entries: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Networks:
        """Return the list in its text. Raises ValueError with the part that is neither an address nor a network.

        A single address is a network of one host. A network whose address has host bits (10.0.0.7/8) is rejected as
        ambiguous. An IPv4 address inside IPv6 (::ffff:10.0.0.7) counts as the IPv4 address.
        """
        parts = [part.strip() for part in text.split(";") if part.strip()]
        if len(parts) > NETWORKS_MAX:
            raise ValueError(f"{len(parts)} networks are over {NETWORKS_MAX}")
        return cls(tuple(_network(part) for part in parts))

    def allows(self, host: str) -> bool:
        """True if `host` (an address as text) is in the list, or if the list is empty."""
        return not self.entries or self.names(host)

    def names(self, host: str) -> bool:
        """True if `host` (an address as text) is in the list. An empty list names no host."""
        address = _address(host)
        return address is not None and any(address in network for network in self.entries)

    def __bool__(self) -> bool:
        """True if the list names at least one network."""
        return bool(self.entries)


@lru_cache(maxsize=64)
def networks(text: str) -> Networks:
    """`Networks.parse` with a cache: every connection needs the list of a property."""
    return Networks.parse(text)


def is_loopback(host: str) -> bool:
    """True if `host` (an address as text) is in the loopback network."""
    address = _address(host)
    return address is not None and address.is_loopback


def is_address(host: str) -> bool:
    """True if `host` is an IPv4 or IPv6 address as text, False for a name."""
    return _address(host) is not None


@lru_cache(maxsize=4096)
def host_key(host: str) -> str:
    """The name under which a host's share counts: an IPv4 address, or the /64 network of an IPv6 address.

    An IPv6 host may choose its addresses in such a network. A host that is no address counts under its own text.
    """
    address = _address(host)
    if isinstance(address, IPv6Address):
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return host if address is None else str(address)


def listens_beyond_loopback(host: str) -> bool:
    """True if other machines can reach a listener on `host`. A host name counts as reachable."""
    return host != "localhost" and not is_loopback(host)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return inner or address


def _network(text: str) -> IPv4Network | IPv6Network:
    address, _, bits = text.partition("/")
    host = _address(address)
    if host is None:
        raise ValueError(f"{text[:100]!r} is neither an address nor a network")
    try:
        return ip_network(f"{host}/{bits}" if bits else str(host))
    except ValueError as error:
        raise ValueError(f"{text[:100]!r}: {error}") from error
