"""Retention overtakes open messages: they end and are counted, and later ones are given."""

import os
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.revival_words import Gauge, RevivalWord
from tests.broker.test_delay_faults import RETENTION
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import committed, found, send
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_MS = 3_600_000
SETTINGS = {**SMALL, **RETENTION, "mappedFileSizeCommitLog": 1 << 18}


def delete_oldest(broker: RunningBroker) -> None:
    """Fill a file of the log, and let retention take the oldest one."""
    log = broker.store / "commitlog"
    with RawClient(broker.address) as client:
        while len(list(log.iterdir())) < 4:
            assert client.send("Fill", b"x" * 20_000).code == 0
    wait_dispatched(broker.store)
    oldest = min(log.iterdir())
    os.utime(oldest, (0, 0))
    wait_until(lambda: not oldest.exists(), "retention takes the file")


def test_open_messages_of_deleted_files_end(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SETTINGS) as broker:
        for topic in ("T", "Fill"):
            make_topic(broker.address, topic, 1)
        send(broker.address, "T", [b"%d" % number for number in range(8)], 1)
        holder, waiter = (PopClient(broker.address, group, "T") for group in ("G_holds", "G_waits"))
        held = [found(holder, invisible_ms=HOUR_MS), *holder.pop(3, HOUR_MS)]
        due = found(waiter, invisible_ms=HOUR_MS)
        delete_oldest(broker)
        send(broker.address, "T", [b"later"], 1)
        wait_until(lambda: waiter.ack(due).code == 208, "the queue begins behind the message, as RocketMQ answers")
        assert {holder.ack(one).code for one in held} == {208}
        assert found(holder).body == found(waiter).body == b"later"
        assert word(broker, RevivalWord.GONE) == 0, "their time is not over"
        broker.kill_all()
    with RunningBroker(tmp_path / "store", SETTINGS) as broker:
        assert "pop" in broker.worker_pids(), "messages are open"
        assert broker.stop() == 0


def test_a_message_whose_record_is_deleted_at_its_time_is_gone(tmp_path: Path) -> None:
    """Its copy cannot be made. The consumer offset passes it, and no line of an error recurs."""
    with RunningBroker(tmp_path / "store", {**SETTINGS, "ringmqPopReviveGraceMs": 60_000}) as broker:
        for topic in ("T", "Fill"):
            make_topic(broker.address, topic, 1)
        send(broker.address, "T", [b"old", b"older"], 1)
        client = PopClient(broker.address, "G", "T")
        found(client, invisible_ms=1)
        found(client, invisible_ms=1)
        delete_oldest(broker)
        assert word(broker, RevivalWord.GONE) == 0, "the grace holds the copies back"
        broker.kill_all()
    with RunningBroker(tmp_path / "store", SETTINGS) as broker:
        wait_until(lambda: word(broker, RevivalWord.GONE) == 2, "both are counted")
        wait_until(lambda: word(broker, Gauge.OPEN) == 0, "none is open")
        wait_until(lambda: committed(broker.address, "G", "T", 0) == 2, "the group is behind them")
        send(broker.address, "T", [b"new"], 1)
        assert found(PopClient(broker.address, "G", "T")).body == b"new"
        assert "cannot come again" not in broker.log_tail(1 << 20)
        assert broker.stop() == 0
