"""Clients that announce large frames and send next to nothing: others are heard meanwhile and at once afterwards."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from reader_kit import Client, MakeKit, ReaderKit, connected, send_frame
from waiting import wait_until

from ringmq.native import lib

CLAIM = struct.pack(">I", 2_000_000) + b"\0\0"
"""A frame of 2 MB is announced. The kit's arena has 6 MiB for frames of such a size."""
CLAIMERS = 600
SILENCE_MAX_S = 1.0
ARENA = {
    "connections_max": 4096,
    "receive_buffer_count": 32,
    "partial_frame_timeout_ms": 30_000,
    "segment_bytes": 256 << 20,
}


@contextmanager
def claimers(kit: ReaderKit, count: int, data: bytes = CLAIM) -> Iterator[list[socket.socket]]:
    """Connections that have sent `data` each and are not closed before the block ends."""
    sockets = []
    for _ in range(count):
        sockets.append(socket.create_connection(kit.listeners[0].getsockname(), timeout=10))
        sockets[-1].sendall(data)
    try:
        yield sockets
    finally:
        for claimer in sockets:
            claimer.close()


class Canary:
    """Asks on connections of each age and remembers the longest time without an answer."""

    def __init__(self, kit: ReaderKit, old: Client) -> None:
        self._kit, self._old = kit, old
        self.longest_s = 0.0

    def sing(self, seconds: float = 0.0, size: int = 6000) -> None:
        """Sends on an old, a new and a VIP connection, once or for so long. `size`: it does not fit one buffer."""
        until = time.monotonic() + seconds
        while True:
            for listener in (-1, 0, 1):
                began = time.monotonic()
                if listener < 0:
                    self._send(self._old, size)
                else:
                    with connected(self._kit, listener) as new:
                        self._send(new, size)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
            assert self.longest_s < SILENCE_MAX_S
            if time.monotonic() >= until:
                return

    def _send(self, client: Client, size: int) -> None:
        client.socket.settimeout(SILENCE_MAX_S)
        assert client.ask(send_frame("TopicA", b"c" * size)).code == 0


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    return make_kit("write", "dispatch", "read", **ARENA)


def test_claims_of_large_frames_silence_nobody(kit: ReaderKit) -> None:
    with connected(kit) as old:
        canary = Canary(kit, old)
        canary.sing()
        with claimers(kit, CLAIMERS):
            canary.sing(1.5)
        canary.sing()


def test_claimers_that_went_away_leave_nothing_behind(kit: ReaderKit) -> None:
    with connected(kit) as old:
        canary = Canary(kit, old)
        with claimers(kit, CLAIMERS):
            canary.sing()
        wait_until(lambda: kit.counter(lib.RMQ_READ_CONNECTIONS) == 1, "all of them are gone", 3)
        canary.sing(size=500_000)
