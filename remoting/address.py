"""host:port as text, and where this machine reaches what listens on all of its addresses."""

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_from_here(listening_host: str) -> str:
    """The host that a client of this machine asks: loopback for a listener on all addresses."""
    return _WILDCARDS.get(listening_host, listening_host)
