"""Timer messages on a running broker: never early, once each over deaths, withdrawn by recalls, counted by metrics."""

import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ringmq.broker.config.run_config import store_config
from ringmq.broker.config.sources import read_config
from ringmq.broker.log_cut import forget_behind
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt
from ringmq.store.salvage import truncate
from ringmq.timer.timer_log import Magic, TimerLog
from tests.broker.test_delay_metrics import Scrape
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import TOPIC_FIELDS, make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
FILE_BYTES = 4 << 20
SETTINGS = {
    "recallMessageEnable": True, "mappedFileSizeTimerLog": 1 << 20, "mappedFileSizeCommitLog": FILE_BYTES,
}  # fmt: skip
SENDS = 300
OF_CLIENT = "1000"
"""A count of rolls that only a broker may write."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send_some(client: RawClient, prefix: str, first_ms: int) -> None:
    """Messages that are due over two seconds, in another order than they are sent."""
    for number in range(SENDS):
        due_ms = now_ms() + first_ms + number * 37 % 2000
        pairs = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"{prefix}{number}", "TIMER_ROLL_TIMES": OF_CLIENT}
        assert client.send("T", b"x", pairs=pairs).code == ResponseCode.SUCCESS


def check(found: list[MessageExt], prefixes: str) -> None:
    copies = Counter(message.properties["UNIQ_KEY"] for message in found)
    assert set(copies) == {f"{prefix}{number}" for prefix in prefixes for number in range(SENDS)}
    assert set(copies.values()) == {1}
    assert all(int(message.properties.get("TIMER_ROLL_TIMES", "0")) < int(OF_CLIENT) for message in found)
    assert all(message.store_timestamp_ms >= int(message.properties["TIMER_DELIVER_MS"]) for message in found)


def by_topic(broker: RunningBroker, topics: Iterable[str]) -> dict[str, float | None]:
    """The numbers of waiting messages."""
    scrape = Scrape(broker)
    return {topic: scrape.value("rocketmq_timing_messages", topic=topic) for topic in topics}


def total(broker: RunningBroker, name: str, topics: Iterable[str]) -> float:
    scrape = Scrape(broker)
    return sum(scrape.value(name, topic=topic) or 0 for topic in topics)


def delivered(broker: RunningBroker) -> list[MessageExt]:
    return messages_of(broker.address, "T", 1)


def test_each_comes_once_and_never_early_over_deaths(tmp_path: Path) -> None:
    """Waiting messages are delivered though their topic takes no more sends."""
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        send_some(client, "a", 1500)
        for share in (0.2, 0.5):
            wait_until(lambda share=share: len(delivered(broker)) >= share * SENDS, "some are delivered")  # type: ignore[misc]
            assert broker.signal_worker("timer", signal.SIGKILL) is not None
        wait_until(lambda: len(delivered(broker)) >= SENDS, "all are delivered")
        check(delivered(broker), "a")
        send_some(client, "b", 2000)
        read_only = {**TOPIC_FIELDS, "topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, read_only).code == ResponseCode.SUCCESS
        wait_until(lambda: len(delivered(broker)) >= 1.3 * SENDS, "some are delivered")
        broker.kill_all()
    with RunningBroker(store, SETTINGS) as broker:
        wait_until(lambda: len(delivered(broker)) >= 2 * SENDS, "all are delivered")
        check(delivered(broker), "ab")
        wait_until(lambda: by_topic(broker, {"T": 0}) == {"T": 0}, "what was delivered before the start is not counted")
        kept = delivered(broker)[int(1.6 * SENDS)].commit_log_offset
        assert broker.stop() == 0
    config, _ = read_config(None, [f"storePathRootDir={store}", f"mappedFileSizeCommitLog={FILE_BYTES}"], {})
    assert truncate(store_config(config), kept, forget_behind).end_offset == kept
    with RunningBroker(store, SETTINGS) as broker:
        wait_until(lambda: len(delivered(broker)) >= 2 * SENDS, "copies that a master has cut are delivered again")
        check(delivered(broker), "ab")
        assert broker.stop() == 0


def test_each_target_that_is_missing_is_named(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        for topic in ("Gone", "Narrow", "Lost"):
            make_topic(broker.address, topic, 2)
        due = {"TIMER_DELIVER_MS": str(now_ms() + 15_000)}
        for topic, queue_id in (("Narrow", 1), ("Gone", 0), ("Lost", 1), ("Narrow", 0), ("Gone", 1)):
            assert client.send(topic, b"x", queue_id=queue_id, pairs=due).code == ResponseCode.SUCCESS
        for topic in ("Gone", "Narrow", "Lost"):
            assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == ResponseCode.SUCCESS
        fields = {"topic": "Narrow", "readQueueNums": 1, "writeQueueNums": 1, **TOPIC_FIELDS}
        again = RequestCode.UPDATE_AND_CREATE_TOPIC
        wait_until(lambda: client.ask(again, fields).code == ResponseCode.SUCCESS, "the old queues are removed")
        wait_until(lambda: Scrape(broker).value("ringmq_timer_skipped_total") == 4, "four have no target")
        assert len(messages_of(broker.address, "Narrow", 1)) == 1
        lines = [line.partition("skips ")[2] for line in broker.log_path.read_text().splitlines() if "skips " in line]
        assert sorted(lines) == [
            "timer messages for queue 1 of topic Narrow: the topic has no such queue",
            "timer messages for topic Gone: the topic does not exist",
            "timer messages for topic Lost: the topic does not exist",
        ]
        assert broker.stop() == 0


def test_metrics_deletes_and_targets_that_are_gone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with RunningBroker(store, SETTINGS) as broker, RawClient(broker.address) as client:
        assert Scrape(broker).value("ringmq_timer_enqueued_total") == 0
        for topic in ("T", "Gone", "Far"):
            make_topic(broker.address, topic, 1)
        due = {"TIMER_DELIVER_MS": str(now_ms() + 12_000)}  # a busy machine takes a while for what is sent first
        assert client.send("Gone", b"x", pairs=due).code == ResponseCode.SUCCESS
        assert client.send("T", b"stays", pairs=due | {"UNIQ_KEY": "stays"}).code == ResponseCode.SUCCESS
        sent = client.send("T", b"goes", pairs=due | {"UNIQ_KEY": "goes"})
        fields = {"topic": "T", "recallHandle": sent.ext_fields["recallHandle"], "producerGroup": "PG"}
        answer = ask_started(client, RequestCode.RECALL_MESSAGE, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        later = {"TIMER_DELIVER_MS": str(now_ms() + 60_000)}
        assert client.send("T", b"goes", pairs=due | {"UNIQ_KEY": "goes, too"}).code == ResponseCode.SUCCESS
        for topic, named in (("T", "goes, too"), ("Gone", "stays"), ("T", "unknown")):
            pairs = later | {"TIMER_DEL_UNIQKEY": f"T+{named}", "UNIQ_KEY": named}
            assert client.send(topic, b"0", pairs=pairs).code == ResponseCode.SUCCESS
        far = {"TIMER_DELIVER_MS": str(now_ms() + 4_000_000)}
        for key in ("a", "b"):
            sent = client.send("Far", b"x", pairs=far | {"UNIQ_KEY": key})
        fields = {"topic": "Far", "recallHandle": sent.ext_fields["recallHandle"], "producerGroup": "PG"}
        assert ask_started(client, RequestCode.RECALL_MESSAGE, fields).code == ResponseCode.SUCCESS
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == ResponseCode.SUCCESS
        wait_until(lambda: Scrape(broker).value("ringmq_timer_enqueued_total") == 11, "all are in the wheel")
        assert Scrape(broker).value("ringmq_timer_unread_messages") == 0
        assert Scrape(broker).value("rocketmq_timer_message_snapshot", timer_bound_s="14400") == 1, "2 less a delete"
        wait_until(lambda: Scrape(broker).value("ringmq_timer_recalled_total") == 2, "two are deleted")
        wait_until(lambda: Scrape(broker).value("ringmq_timer_skipped_total") == 1, "a message has no target")
        assert [message.properties["UNIQ_KEY"] for message in delivered(broker)] == ["stays"]
        assert Scrape(broker).value("ringmq_timer_delivered_total") == 1
        assert Scrape(broker).value("ringmq_timer_lateness_seconds_count") == 1
        waiting = {"T": 0, "Gone": 0, "Far": 2}
        wait_until(lambda: by_topic(broker, waiting) == waiting, "those for later are counted, the others no more")
        wait_until(lambda: Scrape(broker).value("rocketmq_timer_dequeue_lag") == 2, "a delete is no message")
        wait_until(lambda: total(broker, "rocketmq_timer_enqueue_total", waiting) == 11, "with deletes")
        assert total(broker, "rocketmq_delay_message_latency_seconds_count", waiting) == 11
        assert Scrape(broker).value("rocketmq_timer_dequeue_total", topic="T") == 1
        wait_until(lambda: Scrape(broker).value("ringmq_timer_oldest_record_bytes"), "the oldest record is known")
        wait_until(lambda: Scrape(broker).value("ringmq_timer_minute_messages") == 1, "the last minute is known")
        assert (Scrape(broker).value("ringmq_timer_minute_lateness_seconds", quantile="1") or 0) > 0
        assert (Scrape(broker).value("ringmq_timer_behind_seconds") or 0) < 60
        assert broker.stop() == 0
    units = list(TimerLog(store, SETTINGS["mappedFileSizeTimerLog"]).units(0))
    of_target, of_delete = units[4], units[5]
    assert of_delete.magic == Magic.DEFAULT | Magic.DELETE and of_target.magic == Magic.DEFAULT
    assert (of_delete.slot_ms, of_delete.previous) == (of_target.slot_ms, of_target.position)
    assert [unit.slot_ms > now_ms() for unit in units] == [False] * 6 + [True] * 5
