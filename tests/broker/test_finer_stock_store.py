"""Stores of another timerPrecisionMs, one of them of a stock broker: each message comes once, none early."""

import struct
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.store.sealed_files import load_sealed
from ringmq.timer.timer_checkpoint import PROGRESS_FILE
from ringmq.timer.timer_log import FOLDER, UNIT_BYTES
from tests.broker.test_delay_metrics import Scrape
from tests.broker.test_timers import check, now_ms, send_some
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {"mappedFileSizeTimerLog": 1 << 20, "mappedFileSizeCommitLog": 4 << 20}
FINER = {**SETTINGS, "timerPrecisionMs": 100, "timerRollWindowSlot": 20}
COARSE, ROLLED = {**SETTINGS, "timerRollWindowSlot": 3}, 100
RECORD_MAGIC, MARK_AT, SEAL_AT = 0xDAA320A7, 76, 44


def make_stock(root: Path) -> int:
    """Take out what only RingMQ writes: marks, seals of units, its own progress. Returns the number of marks."""
    marks = 0
    for path in (root / "commitlog").iterdir():
        data, at = bytearray(path.read_bytes()), 0
        while struct.unpack_from(">I", data, at + 4)[0] == RECORD_MAGIC:
            marks += any(data[at + MARK_AT : at + MARK_AT + 8])
            data[at + MARK_AT : at + MARK_AT + 8] = bytes(8)
            at += struct.unpack_from(">i", data, at)[0]
        path.write_bytes(data)
    for path in (root / FOLDER).iterdir():
        data = bytearray(path.read_bytes())
        for at in range(0, len(data) - UNIT_BYTES, UNIT_BYTES):
            data[at + SEAL_AT : at + UNIT_BYTES] = bytes(8)
        path.write_bytes(data)
    for path in (root / "config").glob(f"{PROGRESS_FILE}*"):
        path.unlink()
    return marks


def test_each_message_comes_once_and_none_early(tmp_path: Path) -> None:
    """A stock store of 100 ms is opened at the default of 1000.

    Some are due in the second of the stop, others were rolled before it.
    """
    root = tmp_path / "store"
    with RunningBroker(root, FINER) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        send_some(client, "a", 500)
        send_some(client, "b", 9000)
        wait_until(lambda: (Scrape(broker).value("ringmq_timer_rolled_total") or 0) >= 300, "those of later are rolled")
        send_some(client, "c", 300)
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= 400, "some of the last are delivered")
        assert broker.stop() == 0
    saved = load_sealed(root, PROGRESS_FILE)
    assert saved["waits"] and saved["coarsestMs"] == 100, "no record is older than the broker"
    assert make_stock(root) > 700
    with RunningBroker(root, SETTINGS) as broker:
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= 900, "all are delivered")
        found, lines = messages_of(broker.address, "T", 1), broker.log_tail(1 << 20)
        assert broker.stop() == 0
    check(found, "abc")
    assert "the wheel has a precision of 100 ms, timerPrecisionMs is 1000: wheel and log are rebuilt" in lines


def test_rolled_delays_come_once_and_none_early_over_a_finer_precision(tmp_path: Path) -> None:
    """Wheel and log are rebuilt: copies tell of originals, and the step of their sends tells of delays."""
    root, due_ms = tmp_path / "store", dict[str, int]()
    with RunningBroker(root, COARSE) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        for number in range(ROLLED):
            delay_ms = 6500 + number * 37 % 3000
            due_ms[f"k{number}"] = now_ms() + delay_ms
            pairs = {"TIMER_DELAY_MS": str(delay_ms), "UNIQ_KEY": f"k{number}"}
            assert client.send("T", b"x", pairs=pairs).code == 0
        wait_until(lambda: (Scrape(broker).value("ringmq_timer_rolled_total") or 0) >= ROLLED, "all are rolled")
        assert broker.stop() == 0
    with RunningBroker(root, {**COARSE, "timerPrecisionMs": 100}) as broker:
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= ROLLED, "all are delivered")
        wait_until(lambda: Scrape(broker).value("rocketmq_timing_messages", topic="T") == 0, "none waits")
        found = {message.properties["UNIQ_KEY"]: message for message in messages_of(broker.address, "T", 1)}
        assert len(messages_of(broker.address, "T", 1)) == len(found) == ROLLED
        assert "the wheel has a precision of 1000 ms, timerPrecisionMs is 100" in broker.log_tail(1 << 20)
        assert broker.stop() == 0
    assert not [key for key, message in found.items() if message.store_timestamp_ms < due_ms[key]]
