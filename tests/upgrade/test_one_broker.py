"""One broker under load: the version before -> this one -> the version before, on the same store."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt
from tests.raw_client import RawClient
from tests.staging import Stager, bodies_of, make_topic, messages_of
from tests.upgrade.version_kit import TOPIC, Expected, Member, Senders
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.upgrade
NEW = sys.executable
BATCH_BYTES = 10 << 20
TIMERS = "Timers"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_there_and_back_under_load(member: Member, old_python: str, flush: str) -> None:
    broker = member.run(old_python, flushDiskType=flush)
    expected = Expected()
    expected.fill(broker.address, batch_bytes=BATCH_BYTES)
    senders = Senders(broker.address)
    try:
        for number, python in enumerate((old_python, NEW, old_python)):
            if number:
                broker = member.run(python, flushDiskType=flush)
            senders.wait_for_more(200)
            with senders.paused():
                expected.check(broker.address, senders.acknowledged) if number else None
                expected.commit(broker.address, 10 * number + 5)
                expected.check(broker.address, senders.acknowledged)
    finally:
        senders.close()
    assert len(senders.acknowledged) >= 600


def test_a_kill_in_either_version_is_recovered_by_the_other(member: Member, old_python: str) -> None:
    broker = member.run(old_python)
    expected = Expected()
    expected.fill(broker.address)
    senders = Senders(broker.address)
    try:
        expected.commit(broker.address, 3)
        for python in (NEW, old_python, NEW):
            senders.wait_for_more(100)
            broker.kill_all()
            member.broker = None
            broker = member.run(python)
            senders.wait_for_more(10)
            with senders.paused():
                wait_dispatched(member.store)
                found = set(bodies_of(broker.address, TOPIC))
                assert set(senders.acknowledged) <= found
    finally:
        senders.close()


def test_staged_writes_in_flight_are_committed_by_the_other_version(member: Member, old_python: str) -> None:
    broker = member.run(old_python)
    Expected().fill(broker.address)
    wanted: list[bytes] = []
    for batch, python in enumerate((NEW, old_python)):
        with Stager(broker) as stager:
            rows = [b"batch %d row %d" % (batch, row) for row in range(40)]
            chunks = stager.stage("query", batch, [(TOPIC, 0, rows[:20]), (TOPIC, 1, rows[20:])])
        assert sorted(bodies_of(broker.address, TOPIC)) == sorted(wanted), "nothing is visible before the commit"
        broker = member.run(python)
        with Stager(broker) as stager:
            stager.commit("query", batch, chunks)
            stager.commit("query", batch, chunks)
        wanted += rows
        wait_dispatched(member.store)
        assert sorted(bodies_of(broker.address, TOPIC)) == sorted(wanted), "each of them once"


def wait_for_timers(address: str, count: int) -> list[MessageExt]:
    wait_until(lambda: len(messages_of(address, TIMERS, 1)) >= count, f"{count} timer messages are delivered")
    return messages_of(address, TIMERS, 1)


def test_timers_wait_from_version_to_version(member: Member, timers_python: str) -> None:
    """Messages of each version wait, some rolled, when the next one starts. Nothing is called damage."""
    due_ms, found = dict[str, int](), list[MessageExt]()
    for version, python in enumerate((timers_python, NEW, timers_python, NEW)):
        broker = member.run(python, timerRollWindowSlot=3)
        if not version:
            make_topic(broker.address, TIMERS, 1)
        with RawClient(broker.address) as client:
            for number in range(40):
                at_ms, key = time.time_ns() // 1_000_000 + 100 + 170 * number, f"{version}-{number}"
                pairs = {"TIMER_DELIVER_MS": str(at_ms), "UNIQ_KEY": key}
                assert client.send(TIMERS, b"x", pairs=pairs).code == ResponseCode.SUCCESS
                due_ms[key] = at_ms
        found = wait_for_timers(broker.address, len(due_ms) if version == 3 else 40 * version + 5)
        lines = broker.log_tail(1 << 20)
        assert "differ from TimerLog" not in lines and "are rebuilt" not in lines
    assert sorted(message.properties["UNIQ_KEY"] for message in found) == sorted(due_ms)
    assert not [message for message in found if message.store_timestamp_ms < due_ms[message.properties["UNIQ_KEY"]]]


def test_held_writes_stay_held_until_an_operator_decides(member: Member, old_python: str) -> None:
    broker = member.run(old_python)
    Expected().fill(broker.address)
    with RawClient(broker.address) as client:
        assert client.send(TOPIC, b"before").code == 0
    member.stop()
    held = {"broker_id": 1, "address": "127.0.0.1:1", "common_offset": 0, "master_offset": 100, "slave_offset": 900}
    hold = member.store / "config" / "ringmqWriteHold.json"
    hold.write_text(json.dumps([held]))
    for python in (old_python, NEW, old_python, NEW):
        broker = member.run(python)
        with RawClient(broker.address) as client:
            answer = client.send(TOPIC, b"held")
            assert (answer.code, "ringmq ha" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        assert bodies_of(broker.address, TOPIC) == [b"before"]
    member.stop()
    hold.unlink()
    broker = member.run(old_python)
    with RawClient(broker.address) as client:
        assert client.send(TOPIC, b"after").code == 0


def test_the_older_version_names_a_property_that_it_does_not_know(old_python: str, tmp_path: Path) -> None:
    """A downgrade needs it: docs/upgrading.md says to take such names out of broker.conf."""
    conf = tmp_path / "broker.conf"
    conf.write_text("logFormat=text\n")
    command = [old_python, "-m", "ringmq.cli.main", "config", "check", str(conf)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 1 and "logFormat" in checked.stdout + checked.stderr
