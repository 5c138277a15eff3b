"""Timer messages and delay levels over two swaps of master and slave: none is lost, none comes twice."""

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from ringmq.ipc.watermark import read_watermarks
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.timer.timer_checkpoint import TimerCheckpoint, read_timer_checkpoint
from tests.ha.test_pair import MASTER, NAMED, SLAVE, running_slave, wait_for_slave
from tests.raw_client import RawClient
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
LATER_MS = 13_000
"""Delay of the messages that the old master delivers, master again."""
MORE = {
    **NAMED, "mappedFileSizeTimerLog": 1 << 20, "messageDelayLevel": f"1s 3s {LATER_MS // 1000}s",
    "ringmqSlaveSyncPeriod": 1000,
}  # fmt: skip
WINDOW_S = 4
"""Window of the slave: it rolls what its master has filed for later. As a master it has the usual one."""
SENDS = 120


def log_end(store: Path) -> int:
    return read_watermarks(store).append_offset


def filed(store: Path) -> int:
    known = read_timer_checkpoint(store)
    return 0 if known is None else known.queue_offset


def checkpoint(broker: RunningBroker) -> tuple[TimerCheckpoint, dict[str, str]]:
    with RawClient(broker.address) as client:
        answer = client.ask(RequestCode.GET_TIMER_CHECK_POINT, {})
    assert answer.code == 0
    return TimerCheckpoint.decode(bytes(answer.body)), answer.ext_fields


def delivered(broker: RunningBroker) -> list[str]:
    return [message.properties["UNIQ_KEY"] for message in messages_of(broker.address, "T", 1)]


def send_all(client: RawClient) -> int:
    """A third of the timer messages and of the delayed ones is due later. Returns the number of all."""
    for number in range(SENDS):
        wait_ms = LATER_MS if number % 3 == 0 else 4500 + number * 37 % 3000
        due_ms = time.time_ns() // 1_000_000 + wait_ms
        assert client.send("T", b"x", pairs={"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"t{number}"}).code == 0
    for number in range(SENDS // 2):
        level = 3 if number % 3 == 0 else 2
        assert client.send("T", b"x", pairs={"DELAY": str(level), "UNIQ_KEY": f"d{number}"}).code == 0
    return SENDS + SENDS // 2


def wait_for_topic(store: Path) -> None:
    topics = store / "config" / "topics.json"
    wait_until(lambda: topics.exists() and '"T"' in topics.read_text(), "the slave has the master's topics")


def end_deliveries(master: RunningBroker, client: RawClient) -> None:
    """Stop the workers that deliver, and wait until what they have given to `write` is in the log.

    A tail that the slave lacks would make the dead master refuse sends, until an operator has chosen one of the logs.
    """
    for worker in ("timer", "delay"):
        assert master.signal_worker(worker, signal.SIGSTOP) is not None
    assert client.send("Other", b"last").code == 0


def test_nothing_is_lost_or_comes_twice_over_two_swaps(tmp_path: Path) -> None:
    """The slave is made master while messages go out. The old master becomes its slave, and is made master again."""
    first, second = tmp_path / "master", tmp_path / "slave"
    lonely = {**MASTER, **MORE, "brokerRole": "ASYNC_MASTER"}
    with RunningBroker(first, {**MASTER, **MORE}) as master:
        make_topic(master.address, "T", 1)
        of_slave = {**MORE, "timerRollWindowSlot": WINDOW_S}
        with running_slave(tmp_path, master, of_slave), RawClient(master.address) as client:  # type: ignore[arg-type]
            wait_until(lambda: client.send("Other", b"first").code == 0, "the slave is in sync")
            count = send_all(client)
            wait_until(lambda: filed(second) >= SENDS, "the slave has filed all")
            wait_for_topic(second)
            wait_until(lambda: len(delivered(master)) >= SENDS // 4, "some are delivered")
            wait_until(lambda: checkpoint(master)[0].master_queue_offset >= SENDS, "the master has filed all, too")
            known, fields = checkpoint(master)
            assert known.last_read_ms > 0 and int(fields["marksFrom"]) > 0
            file = second / "config" / "ringmqMasterTimers.json"
            wait_until(file.exists, "the slave has the master's progress")
            copied = json.loads(file.read_text())
            assert copied["logOffset"] == copied["marksFrom"] > 0
            assert copied["filing"] == [172_800, 1000, 1000, 1000]
            end_deliveries(master, client)
            wait_until(lambda: log_end(second) == log_end(first), "the slave has all")
            master.kill_all()
    with RunningBroker(second, lonely) as promoted:
        with RunningBroker(first, {**SLAVE, **MORE}, namesrv=promoted.namesrv) as demoted:
            due = count - len([number for number in range(SENDS) if number % 3 == 0]) - SENDS // 6
            wait_until(lambda: len(delivered(promoted)) >= due, "what is due is delivered")
            wait_for_slave(promoted, demoted)
            wait_until((first / "config" / "ringmqMasterTimers.json").exists, "the old master follows")
            assert demoted.stop() == 0
        wait_until(lambda: not file.exists(), "the promoted slave delivers by its own checkpoint")
        promoted.kill_all()
    with RunningBroker(first, lonely) as again:
        wait_until(lambda: len(set(delivered(again))) == count, "all are delivered")
        assert Counter(delivered(again)).most_common(1)[0][1] == 1
        assert again.stop() == 0
    stock = read_timer_checkpoint(first)
    assert stock is not None and stock.master_queue_offset == stock.queue_offset >= SENDS
