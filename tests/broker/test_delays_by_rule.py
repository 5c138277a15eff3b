"""Delay levels in a running broker: redirected at append, delivered when due, never early, once over deaths."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import DataVersion
from ringmq.services.delay.progress import stock_text
from ringmq.store.config_files import load_config
from tests.broker.delay_kit import SETTINGS, check, waiting_of
from tests.broker.test_delay_faults import Clock
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]
WORKERS = (
    lib.RMQ_ROLE_DELAY, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_FLUSH, lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_DISPATCH,
)  # fmt: skip


def awaits_arrivals(broker: RunningBroker) -> bool:
    plane = Plane.open(plane_name(broker.store))
    return bool(plane.header.ports.port[plane.port_of(lib.RMQ_ROLE_DELAY)].awaits)


def test_plain_sends_wake_dispatch_no_more_often_for_delays(tmp_path: Path) -> None:
    """Dispatch naps between batches unless a port has the word `awaits`. A nap is short beside any delay."""
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        assert not awaits_arrivals(broker), "nothing is delayed"
        assert client.send("T", b"m", pairs={"DELAY": "1"}).code == ResponseCode.SUCCESS
        wait_until(lambda: len(messages_of(broker.address, "T", 8)) == 1, "it is delivered")
        assert not awaits_arrivals(broker), "its queue has ended"


@contextmanager
def resting(store: Path) -> Iterator[RunningBroker]:
    """A broker whose `delay` ends after 0.2 s without waiting messages.

    Before, it saves its progress, which waits until the copies are on disk: flush need not wait for four pages.
    """
    prefix = [sys.executable, str(ROOT / "tests" / "services" / "resting_worker.py")]
    settings = {**SETTINGS, "flushCommitLogLeastPages": 0}
    with RunningBroker(store, settings, prefix=prefix, environment={"PYTHONPATH": str(ROOT)}) as broker:
        yield broker


def test_the_worker_rests_until_the_next_delayed_message(tmp_path: Path) -> None:
    with resting(tmp_path / "store") as broker, RawClient(broker.address) as client:
        for count in (1, 2, 3):
            assert client.send("T", b"%d" % count, pairs={"DELAY": "1"}).code == ResponseCode.SUCCESS
            wait_until(lambda count=count: len(messages_of(broker.address, "T", 8)) == count, "it is delivered")
            wait_until(lambda: "delay" not in broker.worker_pids(), "the worker rests")
        assert sorted(message.body for message in messages_of(broker.address, "T", 8)) == [b"1", b"2", b"3"]
        broker.kill_all()
    with resting(tmp_path / "store") as broker:
        wait_until(lambda: "delay" not in broker.worker_pids(), "nothing waits in the recovered store")
        assert len(messages_of(broker.address, "T", 8)) == 3
        assert broker.stop() == 0


def test_all_levels_are_delivered(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        assert "delay" not in broker.worker_pids(), "nothing waits, so it has no process"
        for level in range(1, 20):
            for number in range(3):
                pairs = {"KEYS": "k", "DELAY": str(level)}
                assert client.send(f"Level{level}", b"%d" % number, pairs=pairs).code == ResponseCode.SUCCESS
        wait_dispatched(broker.store)
        for level in range(1, 19):
            topic = f"Level{level}"
            wait_until(lambda topic=topic: len(messages_of(broker.address, topic, 8)) == 3, f"{topic} is delivered")
            [queue] = {message.queue_id for message in waiting_of(client, level)}
            assert queue == level - 1
            waiting = [message for message in waiting_of(client, level) if message.properties["REAL_TOPIC"] == topic]
            delivered = sorted(messages_of(broker.address, topic, 8), key=lambda message: message.commit_log_offset)
            check(waiting, delivered, level)
        wait_until(lambda: len(messages_of(broker.address, "Level19", 8)) == 3, "a level above the last is the last")
        assert broker.stop() == 0
        offsets = load_config(broker.store, "delayOffset.json")["offsetTable"]
        assert {int(level): offset for level, offset in offsets.items()} == {
            level: 6 if level == 18 else 3 for level in range(1, 19)
        }


def test_batches_and_odd_levels(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        assert client.send("T", b"now", pairs={"DELAY": "0"}).code == ResponseCode.SUCCESS
        assert client.send("T", b"now", pairs={"DELAY": "-1"}).code == ResponseCode.SUCCESS
        assert client.send("T", b"no", pairs={"DELAY": "x"}).code == ResponseCode.MESSAGE_ILLEGAL
        pairs = {"DELAY": "1", "TIMER_DELAY_MS": "3600000"}
        assert client.send("T", b"a level wins over a timer", pairs=pairs).code == ResponseCode.SUCCESS
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) == 3, "the level is delivered")
        assert "TIMER_DELAY_MS" not in messages_of(broker.address, "T", 1)[-1].properties
        assert broker.stop() == 0


def test_a_deleted_topic_is_skipped_and_a_retry_topic_is_made_again(tmp_path: Path) -> None:
    clock, settings = Clock(tmp_path), {**SETTINGS, "messageDelayLevel": "1s 1h"}
    with (
        RunningBroker(tmp_path / "store", settings, environment=clock.environment) as broker,
        RawClient(broker.address) as client,
    ):
        for topic in ("Gone", "T"):
            make_topic(broker.address, topic, 1)
            assert client.send(topic, topic.encode(), pairs={"DELAY": "2"}).code == ResponseCode.SUCCESS
        assert client.send("%RETRY%g", b"again", pairs={"DELAY": "2"}).code == ResponseCode.SUCCESS
        wait_dispatched(broker.store)
        for topic in ("Gone", "%RETRY%g"):
            assert client.ask(215, {"topic": topic}).code == ResponseCode.SUCCESS
        clock.set(7200)
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) == 1, "the next one is delivered")
        wait_until(lambda: len(messages_of(broker.address, "%RETRY%g", 1)) == 1, "the retried one is delivered")
        plane = Plane.open(plane_name(broker.store))
        assert plane.topic_find("Gone") is None
        assert broker.stop() == 0


@pytest.mark.parametrize("victim", ["delay", "all", "plane", "stop", "promoted"])
def test_once_over_deaths(tmp_path: Path, victim: str) -> None:
    store, count = tmp_path / "store", 300
    broker = RunningBroker(store, SETTINGS)
    try:
        make_topic(broker.address, "T", 1)
        with RawClient(broker.address) as client:
            for number in range(count):
                pairs = {"DELAY": str(1 + number % 2)}
                assert client.send("T", b"%d" % number, pairs=pairs).code == ResponseCode.SUCCESS
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) > 5, "some are delivered")
        if victim in ("delay", "all"):
            plane = Plane.open(plane_name(store))
            blocks = [plane.role(role) for role in (WORKERS if victim == "all" else WORKERS[:1])]
            pids = [int(block.pid) for block in blocks]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: all(b.state == STATE_SERVING and b.pid not in pids for b in blocks), "all serve")
        else:
            if victim == "promoted":  # a slave's store: its master's file is ahead of its log
                assert broker.stop() == 0
                for name in ("ringmqDelayOffset.json", "ringmqDelayOffset.json.bak"):
                    (store / "config" / name).unlink(missing_ok=True)
                ahead = stock_text((count // 2, count // 2), DataVersion(1, 0, 0))
                (store / "config" / "delayOffset.json").write_text(ahead)
            elif victim == "plane":
                broker.kill_all()
            else:
                assert broker.stop() == 0
            broker = RunningBroker(store, SETTINGS)
        wait_until(lambda: len(messages_of(broker.address, "T", 1)) >= count, "all are delivered")
        with RawClient(broker.address) as client:
            for level in (1, 2):
                delivered = [m for m in messages_of(broker.address, "T", 1) if m.properties["DELAY"] == str(level)]
                check(waiting_of(client, level), delivered, level)
        assert broker.stop() == 0
        checkpoint = json.loads((store / "config" / "ringmqDelayOffset.json").read_text())
        assert checkpoint["offsets"] == {"1": count // 2, "2": count // 2}
    finally:
        broker.close()
