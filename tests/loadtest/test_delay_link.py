"""The slow link: bytes arrive whole, in order and a delay later; a direction can be held and a connection broken."""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.loadtest.ceiling.delay_link import DelayLink, window_bytes
from ringmq.loadtest.load.tools import Tools, build_tools
from ringmq.loadtest.replication.tcp_copy import copy_rate
from tests.speed import WALL, allowed

DELAY_MS = 30.0


@pytest.fixture(scope="module")
def tools() -> Tools:
    return build_tools()


@contextlib.contextmanager
def ends(tools: Tools, **options: float) -> Iterator[tuple[DelayLink, socket.socket, socket.socket]]:
    """A link with both of its ends: who connected, and who was connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        with (
            DelayLink(tools, int(listener.getsockname()[1]), delay_ms=options.get("delay_ms", 0.0)) as link,
            socket.create_connection(("127.0.0.1", link.port), timeout=60) as near,
            listener.accept()[0] as far,
        ):
            far.settimeout(60)
            yield link, near, far


@pytest.mark.timed(cpus=1)
def test_every_byte_is_delayed_both_ways(tools: Tools) -> None:
    with ends(tools, delay_ms=DELAY_MS) as (_, near, far):
        for source, target in ((near, far), (far, near)):
            began = time.monotonic()
            source.sendall(b"a")
            assert target.recv(10) == b"a"
            assert time.monotonic() - began >= DELAY_MS / 1000


def test_much_arrives_whole_and_in_order(tools: Tools) -> None:
    data = random.Random(5).randbytes(8 << 20)
    with ends(tools, delay_ms=1) as (link, near, far):
        sender = threading.Thread(target=near.sendall, args=(data,))
        sender.start()
        with far.makefile("rb") as stream:
            assert stream.read(len(data)) == data
        sender.join()
        assert link.run("count").bytes_to == len(data)


@pytest.mark.timed(cpus=1)
def test_many_bytes_are_on_the_way_at_once(tools: Tools) -> None:
    """A link that waited for one chunk before it took the next would need 64 x 30 ms."""
    chunk = bytes(1 << 18)
    with ends(tools, delay_ms=DELAY_MS) as (_, near, far):
        began = time.monotonic()
        sender = threading.Thread(target=near.sendall, args=(64 * chunk,))
        sender.start()
        with far.makefile("rb") as stream:
            stream.read(64 * len(chunk))
        assert time.monotonic() - began < allowed(64 * DELAY_MS / 1000 / 2, WALL)
        sender.join()


def test_a_held_direction_gives_nothing_and_the_other_flows(tools: Tools) -> None:
    with ends(tools) as (link, near, far):
        link.run("hold-back")
        far.sendall(b"late")
        near.sendall(b"now")
        assert far.recv(10) == b"now"
        near.settimeout(0.1)
        with pytest.raises(TimeoutError):
            near.recv(10)
        near.settimeout(60)
        link.run("flow")
        assert near.recv(10) == b"late"


@pytest.mark.parametrize("command", ["reset", "close"])
def test_a_broken_connection_is_seen_by_both(tools: Tools, command: str) -> None:
    with ends(tools) as (link, near, far):
        before = time.monotonic_ns()
        state = link.run("reset" if command == "reset" else "close")
        assert before <= state.at_ns <= time.monotonic_ns()
        for end in (near, far):
            if command == "reset":
                with pytest.raises(ConnectionResetError):
                    end.recv(10)
            else:
                assert end.recv(10) == b""


def test_refused_connections_end_at_once(tools: Tools) -> None:
    with ends(tools) as (link, _, _):
        link.run("refuse")
        with socket.create_connection(("127.0.0.1", link.port), timeout=60) as refused:
            assert refused.recv(1) == b""


def test_a_file_is_copied_directly_and_through_a_link(tools: Tools, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(4 << 20))
    assert copy_rate(tools, source, tmp_path / "target") > 0
    # 4 MiB arrive at the earliest one delay, and are known to be there two delays after the first byte left.
    assert copy_rate(tools, source, tmp_path / "target", delay_ms=DELAY_MS) <= (4 << 20) / (2 * DELAY_MS / 1000)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("rate", "round_trip_ms", "window"), [(400e6, 0.0, 1 << 20), (400e6, 40.0, 32 << 20), (1e6, 1.0, 1 << 16)]
)
def test_the_window_covers_bandwidth_times_round_trip(rate: float, round_trip_ms: float, window: int) -> None:
    assert window_bytes(rate, round_trip_ms) == window
    assert window >= rate * round_trip_ms / 1000
