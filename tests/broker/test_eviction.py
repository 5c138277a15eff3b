"""Connections that use up a reader's memory: other clients are served meanwhile and at once afterwards."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.command import RemotingCommand, encode_frame
from tests.raw_client import RawClient, private_bytes
from tests.waiting import TIMEOUT_S, wait_until

CLAIM = bytes.fromhex("00f424000000")
"""A frame of 16 MB is announced, and two bytes of it come."""
CLAIMERS = 2800
SILENCE_MAX_S = 10.0
"""Far more than a stall of the machine, and far less than the time of a half frame."""
SETTINGS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "ringmqPartialFrameTimeoutMs": 300_000,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "store", SETTINGS) as running:
        workers = running.worker_pids()
        yield running
        assert running.worker_pids() == workers, "no worker has been replaced"
        assert running.stop() == 0


class Canary:
    """Sends on connections of each age and on the VIP port; none of them may be silent for long."""

    def __init__(self, address: str) -> None:
        self._address = address
        host, port = address.rsplit(":", 1)
        self._vip_address = f"{host}:{int(port) - 2}"
        self._old = RawClient(address, SILENCE_MAX_S)
        self.longest_s = 0.0

    def ping(self, seconds: float = 0.0) -> None:
        """One round, or as many as there is time for."""
        until = time.monotonic() + seconds
        while True:
            self._send(self._old)
            for address in (self._address, self._vip_address):
                began = time.monotonic()
                with RawClient(address, SILENCE_MAX_S) as new:
                    self._send(new)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
            assert self.longest_s < SILENCE_MAX_S
            if time.monotonic() >= until:
                return

    def _send(self, client: RawClient) -> None:
        began = time.monotonic()
        assert client.send("Canary", b"c" * 2000).code == 0
        self.longest_s = max(self.longest_s, time.monotonic() - began)


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CLAIMERS:
        pytest.skip(f"needs {2 * CLAIMERS} open files, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CLAIMERS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_announced_frames_that_do_not_come_silence_nobody(broker: RunningBroker) -> None:
    host, port = broker.address.rsplit(":", 1)
    canary = Canary(broker.address)
    canary.ping()
    claimers = []
    for number in range(CLAIMERS):
        claimers.append(socket.create_connection((host, int(port)), timeout=TIMEOUT_S))
        claimers[-1].sendall(CLAIM)
        if number % 100 == 0:
            canary.ping()
    canary.ping(2.0)
    for claimer in claimers:
        claimer.close()
    canary.ping(1.0)


ANSWERS_MAX = 32 << 20
KEPT_BYTES = 20 << 20
GET_BROKER_CONFIG = 26


def test_answers_that_nobody_reads_cost_no_more_than_allowed(tmp_path: Path) -> None:
    """Ten clients ask for 15 MB each and read nothing; their memory goes back when they have gone."""
    with RunningBroker(tmp_path / "store", SETTINGS | {"ringmqAnswerBytesMax": ANSWERS_MAX}) as broker:
        reader = [broker.worker_pids()["read-0"]]
        host, port = broker.address.rsplit(":", 1)
        canary = Canary(broker.address)
        canary.ping()
        before = private_bytes(reader)
        question = encode_frame(RemotingCommand.request(GET_BROKER_CONFIG, {}))
        with ExitStack() as stack:
            for _ in range(10):
                silent = stack.enter_context(socket.socket())
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.connect((host, int(port)))
                silent.sendall(question * 1500)
                canary.ping()
                assert private_bytes(reader) - before < 1.5 * ANSWERS_MAX
            wait_until(lambda: private_bytes(reader) - before > ANSWERS_MAX / 2, "half of the bound is in use")
            canary.ping(2.0)
            assert private_bytes(reader) - before < 1.5 * ANSWERS_MAX
        wait_until(lambda: private_bytes(reader) - before < KEPT_BYTES, "their memory is given back")
        canary.ping()
        assert broker.stop() == 0
