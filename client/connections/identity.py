"""Who this client is: the client id that brokers know it by and the source of its UNIQ_KEYs."""

import os
import socket
import time

from ringmq.remoting.message_id import UniqKeyGenerator


def local_ip(towards: str = "192.0.2.1") -> str:
    """This host's address as seen on the way to `towards` (nothing is sent); 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def new_client_id() -> str:
    """`ip@pid#nanoseconds`, as Java makes it: unique per client object."""
    return f"{local_ip()}@{os.getpid()}#{time.monotonic_ns()}"


def new_key_generator() -> UniqKeyGenerator:
    """A UNIQ_KEY source for one producer; the random number keeps those of one process apart."""
    return UniqKeyGenerator(local_ip(), os.getpid(), int.from_bytes(os.urandom(4), "big"))


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000
