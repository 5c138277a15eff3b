"""Clients that announce large frames and send next to nothing: others are heard meanwhile and at once afterwards."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from reader_kit import Client, MakeKit, ReaderKit, connected, request, send_frame
from waiting import TIMEOUT_S, wait_until

from ringmq.native import lib

CLAIM = struct.pack(">I", 2_000_000) + b"\0\0"
"""A frame of 2 MB is announced. The kit's arena has 6 MiB for frames of such a size."""
CLAIMERS = 600
SILENCE_MAX_S = 10.0
"""Far more than a stall of the machine, and far less than the time of a half frame."""
ARENA = {
    "connections_max": 4096,
    "receive_buffer_count": 32,
    "partial_frame_timeout_ms": 300_000,
    "segment_bytes": 256 << 20,
}


@contextmanager
def claimers(kit: ReaderKit, count: int, data: bytes = CLAIM) -> Iterator[list[socket.socket]]:
    """Connections that have sent `data` each and are not closed before the block ends."""
    sockets = []
    for _ in range(count):
        sockets.append(socket.create_connection(kit.listeners[0].getsockname(), timeout=TIMEOUT_S))
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

    def ping(self, seconds: float = 0.0, size: int = 6000) -> None:
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
        canary.ping()
        with claimers(kit, CLAIMERS):
            canary.ping(1.5)
        canary.ping()


def test_claimers_that_went_away_leave_nothing_behind(kit: ReaderKit) -> None:
    with connected(kit) as old:
        canary = Canary(kit, old)
        with claimers(kit, CLAIMERS):
            canary.ping()
        wait_until(lambda: kit.counter(lib.RMQ_READ_CONNECTIONS) == 1, "all of them are gone")
        canary.ping(size=500_000)


ANSWER = b"a" * 50_000
ANSWERS_MAX = 4 << 20


def test_answers_that_nobody_reads_are_bounded_over_all_connections(make_kit: MakeKit) -> None:
    """Each of sixty clients leaves 600 KB unread, far less than one connection may; together they may leave 4 MiB."""
    kit = make_kit("write", "read", answer_bytes_max=ANSWERS_MAX)
    kit.listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    with connected(kit) as reading, ExitStack() as stack:
        silent = [stack.enter_context(connected(kit)) for _ in range(60)]
        for client in silent:
            client.send(*(request(105, {"topic": "A"}) for _ in range(12)))
            for _ in range(12):
                kit.verdict(kit.take()[0], lib.RMQ_VERDICT_SEND, ANSWER)
            assert reading.ask(send_frame("TopicA", b"x")).code == 0
            assert kit.counter(lib.RMQ_READ_ANSWER_BYTES) < ANSWERS_MAX * 1.25
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) > 40, "the largest backlogs have been closed")
        assert kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) < 60
    wait_until(lambda: kit.counter(lib.RMQ_READ_ANSWER_BYTES) == 0, "all answers are forgotten")
    wait_until(lambda: kit.counter(lib.RMQ_READ_PRIVATE_BYTES) < 10 << 20, "little is kept")


def test_the_largest_backlogs_are_closed_at_the_limit_of_the_whole_broker(make_kit: MakeKit) -> None:
    kit = make_kit("write", "read", answer_bytes_max=ANSWERS_MAX)
    kit.listeners[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    with connected(kit) as reading, ExitStack() as stack:
        silent = [stack.enter_context(connected(kit)) for _ in range(5)]
        for number, client in enumerate(silent):
            count = 12 if number < 3 else 1
            client.send(*(request(105, {"topic": "A"}) for _ in range(count)))
            for _ in range(count):
                kit.verdict(kit.take()[0], lib.RMQ_VERDICT_SEND, ANSWER)
        assert reading.ask(send_frame("TopicA", b"x")).code == 0
        assert kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) == 0
        kit.header.memory.level = lib.RMQ_MEMORY_NEAR
        assert reading.ask(send_frame("TopicA", b"x")).code == 0
        assert kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) == 0
        kit.header.memory.level = lib.RMQ_MEMORY_FULL
        assert reading.ask(send_frame("TopicA", b"x")).code == 0
        wait_until(lambda: kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) >= 3, "the large backlogs are closed")
        wait_until(lambda: kit.counter(lib.RMQ_READ_ANSWER_BYTES) <= ANSWERS_MAX / 8, "room is made")
        assert reading.ask(send_frame("TopicA", b"x")).code == 0
        assert kit.counter(lib.RMQ_READ_CLOSED_ANSWERS) == 3, "the small backlogs stay"


def test_a_host_has_no_more_than_its_share_of_the_connections(make_kit: MakeKit) -> None:
    kit = make_kit("write", "read", connections_max=8, host_connections_max=5)
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(kit)) for _ in range(5)]
        assert [client.ask(send_frame("TopicA", b"x")).code for client in clients] == [0] * 5
        assert stack.enter_context(connected(kit)).is_closed()
        with closing(Client(kit.listeners[0].getsockname(), "127.0.0.2")) as stranger:
            assert stranger.ask(send_frame("TopicA", b"x")).code == 0
        clients[0].close()
        wait_until(lambda: kit.counter(lib.RMQ_READ_CONNECTIONS) == 4, "one of them has gone")
        assert stack.enter_context(connected(kit)).ask(send_frame("TopicA", b"x")).code == 0
    assert kit.counter(lib.RMQ_READ_CLOSED_HOST) == 1
