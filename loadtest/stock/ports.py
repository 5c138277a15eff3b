"""Free loopback ports. Another process may take a free port at any time, so callers bind soon after.

They come from below the range that the kernel gives to outgoing connections: a broker that needs three ports in a row
would lose one to a client now and then.
"""

import random
import socket
from contextlib import ExitStack

LOWEST, HIGHEST = 12_000, 32_000
TRIES = 256
_DICE = random.SystemRandom()
"""Tests seed the shared generator. Processes with one seed would then draw the same ports."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on `host` without a listener now."""
    return _free(host, (0,))


def free_broker_port(host: str = "127.0.0.1") -> int:
    """Return a port p of which p - 2 (fast listener) and p + 1 (HA listener) are free as well."""
    return _free(host, (-2, 0, 1))


def _free(host: str, offsets: tuple[int, ...]) -> int:
    for _ in range(TRIES):
        port = _DICE.randrange(LOWEST, HIGHEST)
        if all(_is_free(host, port + offset) for offset in offsets):
            return port
    raise OSError(f"no free port on {host} after {TRIES} tries from {LOWEST} to {HIGHEST}")


def _is_free(host: str, port: int) -> bool:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True
