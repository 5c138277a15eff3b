"""Timer messages over jumps of the broker's clock: seconds, hours, days, a year; while it runs and over a restart."""

import time
from collections import Counter
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt
from tests.broker.test_delay_faults import Clock
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_S, DAY_S = 3600, 86_400
SETTINGS = {"mappedFileSizeTimerLog": 1 << 20, "fileReservedTime": 1_000_000}
DELAYS_MS = (30, 250, 900)
SHIFTS_S = (2, -2, 3 * HOUR_S, -3 * HOUR_S, 40 * DAY_S)
"""Each is set for a while. Behind the last one the true time is set again: times are kept to the second for 48 days."""


class Sends:
    """Messages with the time that they ask for, of the broker's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due_ms: dict[str, int] = {}
        self._shift_s = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._shift_s * 1000

    def shift(self, seconds: int) -> None:
        self._shift_s = seconds
        self._clock.set(seconds)

    def send(self, client: RawClient) -> None:
        """Some that come before the next jump of the clock, and some that the jump makes due or early."""
        for delay_ms in DELAYS_MS:
            key = f"k{len(self.due_ms)}"
            self.due_ms[key] = self.now_ms() + delay_ms
            pairs = {"TIMER_DELIVER_MS": str(self.due_ms[key]), "UNIQ_KEY": key}
            assert client.send("T", b"x", pairs=pairs).code == ResponseCode.SUCCESS

    def check(self, found: list[MessageExt]) -> None:
        """Each came once. None is there whose time the broker's clock has not reached. One whose time was over when the
        broker got it is stored at once."""
        copies = Counter(message.properties["UNIQ_KEY"] for message in found)
        assert set(copies.values()) == {1}
        for message in found:
            pairs = message.properties
            shown_ms = int(pairs.get("TIMER_DEQUEUE_MS", message.store_timestamp_ms))
            assert shown_ms >= int(pairs["TIMER_DELIVER_MS"]), "the clock at its delivery"

    def soon_due(self) -> set[str]:
        return {key for key, due_ms in self.due_ms.items() if due_ms <= self.now_ms() + 1000}


def test_each_comes_once_and_never_early_over_jumps_of_the_clock(tmp_path: Path) -> None:
    clock, store = Clock(tmp_path), tmp_path / "store"
    sends = Sends(clock)
    found: list[MessageExt] = []

    def came(broker: RunningBroker, wanted: set[str]) -> bool:
        found[:] = messages_of(broker.address, "T", 1)
        return {message.properties["UNIQ_KEY"] for message in found} >= wanted

    def wait(broker: RunningBroker, shift_s: int) -> None:
        wanted = sends.soon_due()
        wait_until(lambda: came(broker, wanted), f"what is due at {shift_s:+} s is delivered", 120)
        sends.check(found)

    with RunningBroker(store, SETTINGS, environment=clock.environment) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        for shift_s in (*SHIFTS_S, 0):
            sends.send(client)
            sends.shift(shift_s)
            sends.send(client)
            wait(broker, shift_s)
        sends.send(client)
        sends.shift(2 * HOUR_S)
        sends.send(client)
        broker.kill_all()
    sends.shift(0)
    with RunningBroker(store, SETTINGS, environment=clock.environment) as broker, RawClient(broker.address) as client:
        sends.send(client)
        wait(broker, 0)
        sends.shift(365 * DAY_S)
        wait(broker, 365 * DAY_S)
        assert {message.properties["UNIQ_KEY"] for message in found} == set(sends.due_ms)
        assert broker.stop() == 0
