"""Free loopback ports. A port is only free until somebody takes it, so callers bind soon after."""

import socket
from contextlib import ExitStack


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on `host` that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def free_broker_port(host: str = "127.0.0.1") -> int:
    """Return a port p of which p - 2 (fast listener) and p + 1 (HA listener) are free as well."""
    for _ in range(64):
        port = free_port(host)
        if 1026 < port < 65535 and all(_is_free(host, p) for p in (port - 2, port, port + 1)):
            return port
    raise OSError(f"no three free ports p-2, p, p+1 on {host} after 64 tries")


def _is_free(host: str, port: int) -> bool:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True
