"""Delay levels beside forged copies, clocks that jump, and records that retention deletes."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.republish_words import SKIPPED
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt
from tests.broker.delay_kit import SCHEDULE, SETTINGS, waiting_of
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_S = 3600
UNFLUSHED = {"flushCommitLogThoroughInterval": HOUR_S * 1000}
"""A small log stays off the disk until the broker stops."""
SOURCES = Path(__file__).parents[1] / "native"
RETENTION = {
    "mappedFileSizeCommitLog": 1 << 20,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "fileReservedTime": 1,
    "cleanResourceInterval": 100,
}


def delay(client: RawClient, body: bytes, level: int, **pairs: str) -> None:
    """Send a delayed message to queue 0 of topic T."""
    assert client.send("T", body, pairs={**pairs, "DELAY": str(level)}).code == ResponseCode.SUCCESS


def bodies(broker: RunningBroker) -> list[bytes]:
    """What queue 0 of topic T holds."""
    return [bytes(message.body) for message in messages_of(broker.address, "T", 1)]


# -- forged copies -----------------------------------------------------------------------------------------


def forged(source: MessageExt) -> dict[str, str]:
    """The pairs of the copy that the worker would publish, without the delay."""
    names = ("REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "KEYS")
    return {name: source.properties[name] for name in names if name in source.properties}


def test_copies_that_clients_forge_change_nothing_after_a_loss_of_the_plane(tmp_path: Path) -> None:
    store, count, clock = tmp_path / "store", 20, Clock(tmp_path)
    late = {**SETTINGS, "messageDelayLevel": "1s 2s 30m"}
    with (
        RunningBroker(store, late, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        for number in range(count):
            delay(client, b"%d" % number, 3, UNIQ_KEY=f"{number:032X}", REAL_TOPIC="Elsewhere", REAL_QID="7")
        wait_dispatched(store)
        sources = waiting_of(client, 3)
        assert {source.properties["REAL_TOPIC"] for source in sources} == {"T"}, "a sender's own pair is replaced"
        for source in sources:
            assert client.send("T", bytes(source.body), pairs=forged(source)).code == ResponseCode.SUCCESS
            assert client.send(SCHEDULE, b"x", pairs=forged(source)).code != ResponseCode.SUCCESS
        wait_dispatched(store)
        assert len(bodies(broker)) == count, "nothing is due yet, the forged ones are there"
        broker.kill_all()
    clock.set(HOUR_S)
    with RunningBroker(store, late, environment=clock.environment) as broker:
        wait_until(lambda: len(bodies(broker)) == 2 * count, "the real copies come too")
        expected = [b"%d" % number for number in range(count)]
        assert bodies(broker) == expected + expected
        broker.kill_all()
    with (
        RunningBroker(store, SETTINGS, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        delay(client, b"last", 3)
        wait_until(lambda: bodies(broker)[-1] == b"last", "the next delayed message comes")
        assert len(bodies(broker)) == 2 * count + 1, "no copy came again"
        assert broker.stop() == 0


# -- the clock ---------------------------------------------------------------------------------------------


class Clock:
    """The wall clock of a broker's processes."""

    def __init__(self, folder: Path) -> None:
        self._shift, library = folder / "shift", folder / "preloaded_clock.so"
        self.set(0)
        command = ["cc", "-shared", "-fPIC", "-o", library, SOURCES / "preloaded_clock.c"]
        subprocess.run(command, check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_SHIFT": str(self._shift)}

    def set(self, seconds: int) -> None:
        """Set the clock ahead of the true time, at once for all processes."""
        mode = "r+b" if self._shift.exists() else "wb"
        with self._shift.open(mode, buffering=0) as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


def stays(condition: Callable[[], bool], seconds: float) -> bool:
    """True if the condition holds for a span of time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            return False
        time.sleep(0.05)  # poll
    return True


def test_a_clock_that_is_set_back_an_hour_delivers_nothing_early(tmp_path: Path) -> None:
    """The first messages are delivered before the log is flushed."""
    clock, settings = Clock(tmp_path), {**SETTINGS, **UNFLUSHED, "messageDelayLevel": "1s 1m"}
    with (
        RunningBroker(tmp_path / "store", settings, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        for number in range(5):
            delay(client, b"%d" % number, 2)
        clock.set(-HOUR_S)
        delay(client, b"behind", 2)  # store times never go back, so it waits, too
        wait_dispatched(broker.store)
        assert stays(lambda: not bodies(broker), 3), "they wait for their time"
        clock.set(120)
        expected = [*(b"%d" % number for number in range(5)), b"behind"]
        wait_until(lambda: len(bodies(broker)) == len(expected), "their time has come")
        assert bodies(broker) == expected
        assert broker.stop() == 0


def test_a_clock_that_is_set_forward_an_hour_delivers_what_is_due_then(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    settings = {**SETTINGS, "messageDelayLevel": "30m 59m 2h"}
    with (
        RunningBroker(tmp_path / "store", settings, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        for number in range(6):
            delay(client, b"%d" % number, 1 + number % 3)
        wait_dispatched(broker.store)
        assert stays(lambda: not bodies(broker), 1), "nothing is due"
        clock.set(HOUR_S)
        wait_until(lambda: len(bodies(broker)) == 4, "two levels are due")
        found = bodies(broker)
        assert [body for body in found if body in (b"0", b"3")] == [b"0", b"3"]
        assert [body for body in found if body in (b"1", b"4")] == [b"1", b"4"]
        assert stays(lambda: len(bodies(broker)) == 4, 1), "the third is not"
        assert broker.stop() == 0


# -- retention ---------------------------------------------------------------------------------------------


def test_messages_that_retention_has_taken_are_counted_and_told_once(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, {**RETENTION, "messageDelayLevel": "1h"}) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        for number in range(3):
            delay(client, b"%d" % number, 1)
        for _ in range(40):
            assert client.send("Large", bytes(100_000)).code == ResponseCode.SUCCESS
        delay(client, b"kept", 1)
        wait_dispatched(store)
        wait_until(lambda: (store / "config" / "ringmqDelayOffset.json").exists(), "the progress is saved")
        first = min((store / "commitlog").iterdir())
        os.utime(first, (time.time() - 7200,) * 2)
        wait_until(lambda: not first.exists(), "retention has deleted the file of the delayed messages")
        assert broker.stop() == 0
    with RunningBroker(store, {**SETTINGS, **RETENTION}) as broker:
        wait_until(lambda: bodies(broker) == [b"kept"], "the next message is delivered")
        plane = Plane.open(plane_name(store))
        assert plane.role(lib.RMQ_ROLE_DELAY).counters[SKIPPED] == 3
        assert broker.log_path.read_text().count("delay skips 3 messages: retention has deleted their records") == 1
        assert broker.stop() == 0
