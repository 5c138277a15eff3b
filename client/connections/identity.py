"""The identity of a client: its client id at brokers, and the source of its UNIQ_KEYs."""

import os
import socket
import time

from ringmq.remoting.message_id import UniqKeyGenerator


def local_ip(towards: str = "192.0.2.1") -> str:
    """Return this host's address on the route to `towards` (nothing is sent), 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def new_client_id() -> str:
    """Return `ip@pid#nanoseconds`, as Java makes it: unique per client object."""
    return f"{local_ip()}@{os.getpid()}#{time.monotonic_ns()}"


def new_key_generator() -> UniqKeyGenerator:
    """Return a source of UNIQ_KEYs for one producer. A random number separates producers of one process."""
    return UniqKeyGenerator(local_ip(), os.getpid(), int.from_bytes(os.urandom(4), "big"))


def now_ms() -> int:
    """Return the wall time in ms."""
    return time.time_ns() // 1_000_000
