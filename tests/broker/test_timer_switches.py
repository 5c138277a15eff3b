"""Timer messages that are held: by switches that a running broker takes by request 25, and by a stalled worker."""

import os
import signal
import time
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.test_delay_metrics import Scrape
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

DELAY_MS, LATE_MS = 500, 2500


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def set_switch(client: RawClient, name: str, is_on: bool) -> None:
    answer = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{name}={str(is_on).lower()}\n".encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize(
    ("name", "enqueued"), [("timerStopDequeue", 1), ("timerStopEnqueue", 0)], ids=["dequeue", "enqueue"]
)
def test_a_live_switch_holds_messages_and_lets_them_go(tmp_path: Path, name: str, enqueued: int) -> None:
    """What was due meanwhile is delivered at once."""
    with RunningBroker(tmp_path / "store", SMALL) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)

        def delivered() -> list[str]:
            return [message.properties["UNIQ_KEY"] for message in messages_of(broker.address, "T", 1)]

        def send(key: str) -> int:
            due_ms = now_ms() + DELAY_MS
            pairs = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": key}
            assert client.send("T", b"x", pairs=pairs).code == ResponseCode.SUCCESS
            return due_ms

        send("before")
        wait_until(lambda: delivered() == ["before"], "without the switch it is delivered")
        set_switch(client, name, True)
        held_ms = send("held") + LATE_MS
        wait_until(lambda: now_ms() > held_ms, "it is late by more than two slots")
        assert delivered() == ["before"]
        wait_until(
            lambda: Scrape(broker).value("ringmq_timer_enqueued_total") == 1 + enqueued, "it is where it belongs"
        )
        wait_until(lambda: Scrape(broker).value("ringmq_timer_unread_messages") == 1 - enqueued, "and counted there")
        set_switch(client, name, False)
        wait_until(lambda: delivered() == ["before", "held"], "it is delivered")
        assert broker.stop() == 0


def recalled_while_stalled(broker: RunningBroker, client: RawClient, number: int) -> bool:
    """Two messages of one slot. While the worker is stopped, one of them is recalled. False if this came too late."""
    due_ms = (now_ms() // 1000 + 4) * 1000
    handles = {}
    for key in ("recalled", "kept"):
        pairs = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"{key}-{number}"}
        handles[key] = client.send("T", b"x", pairs=pairs).ext_fields["recallHandle"]
    wait_until(lambda: now_ms() > due_ms - 1950, "the slot is read a second before its time, which is a second before")
    worker = broker.signal_worker("timer", signal.SIGSTOP)
    assert worker is not None
    fields = {"topic": "T", "recallHandle": handles["recalled"], "producerGroup": "PG"}
    answer = ask_started(client, RequestCode.RECALL_MESSAGE, fields)
    is_in_time = now_ms() <= due_ms - 1000
    assert answer.code == ResponseCode.SUCCESS or not is_in_time, answer.remark
    wait_until(lambda: now_ms() > due_ms + 500, "it is due")
    os.kill(worker, signal.SIGCONT)
    return is_in_time


def test_a_recall_in_time_works_though_the_worker_was_stalled(tmp_path: Path) -> None:
    """The slot is in memory, and due when the worker goes on. The delete waits in the timer topic."""
    with (
        RunningBroker(tmp_path / "store", {"recallMessageEnable": True}) as broker,
        RawClient(broker.address) as client,
    ):
        make_topic(broker.address, "T", 1)
        number = next(number for number in range(6) if recalled_while_stalled(broker, client, number))

        def delivered() -> set[str]:
            return {message.properties["UNIQ_KEY"] for message in messages_of(broker.address, "T", 1)}

        wait_until(lambda: f"kept-{number}" in delivered(), "the other one is delivered")
        wait_until(lambda: Scrape(broker).value("ringmq_timer_recalled_total"), "the recall is obeyed")
        assert f"recalled-{number}" not in delivered()
        assert broker.stop() == 0
