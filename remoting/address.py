"""host:port as text, and the address by which this machine reaches a listener on all of its addresses."""

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_from_here(listening_host: str) -> str:
    """Return the host for a client on this machine: loopback for a listener on all addresses."""
    return _WILDCARDS.get(listening_host, listening_host)


def for_lookup(host: str) -> str | bytes:
    """Return the host as `socket.getaddrinfo` takes it at least cost: it imports the idna codec for any text, 5 ms."""
    return host.encode() if host.isascii() else host
