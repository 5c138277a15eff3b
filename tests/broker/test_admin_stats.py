"""Numbers, connections and queries for operators."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ringmq.broker.control_shell import store_folder
from ringmq.broker.handlers.runtime_info import format_bytes, format_runtime
from ringmq.broker.tables.protocols import KeyQuery
from ringmq.ipc.republish_words import PROGRESS
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.native import lib
from ringmq.remoting.admin_bodies import (
    ConsumerConnection,
    ConsumeStats,
    TopicStats,
    decode_group_list,
    decode_kv_table,
    decode_topic_list,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.json_body import read_object
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import SCHEDULE_TOPIC
from ringmq.store.config import StoreConfig
from ringmq.store.markers import BOOT_ID
from tests.broker.fakes import IDENTITY, START_MS, make_harness, peer

RECORDED_RUNTIME_KEYS = frozenset(
    """msgPutTotalTodayNow brokerActive sendThreadPoolQueueHeadWaitTimeMills putMessageDistributeTime
    queryThreadPoolQueueHeadWaitTimeMills remainHowManyDataToFlush msgGetTotalTodayNow timerEnqueueTps
    queryThreadPoolQueueSize timerOffsetBehind bootTimestamp msgPutTotalYesterdayMorning
    msgGetTotalYesterdayMorning pullThreadPoolQueueSize commitLogMinOffset pullThreadPoolQueueHeadWaitTimeMills
    runtime dispatchMaxBuffer brokerVersion putTps getTransferredTps getMissTps
    litePullThreadPoolQueueHeadWaitTimeMills EndTransactionQueueSize getTotalTps consumeQueueDiskRatio
    litePullThreadPoolQueueSize pageCacheLockTimeMills ackThreadPoolQueueSize commitLogDiskRatio getFoundTps
    EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueHeadWaitTimeMills putMessageFailedTimes
    putLatency999 timerReadBehind commitLogMaxOffset getMessageEntireTimeMax msgPutTotalTodayMorning
    putMessageTimesTotal putLatency99 msgGetTotalTodayMorning brokerVersionDesc startAcceptSendRequestTimeStamp
    sendThreadPoolQueueSize putMessageEntireTimeMax earliestMessageTimeStamp commitLogDirCapacity
    timerCongestNum remainTransientStoreBufferNumbs ackThreadPoolQueueCapacity queryThreadPoolQueueCapacity
    putMessageAverageSize dispatchBehindBytes putMessageSizeTotal sendThreadPoolQueueCapacity timerDequeueTps
    pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity""".split()  # noqa: SIM905
)
"""Keys of stock's recorded answer to 28, without those of a path or of delay levels."""


def test_topic_stats() -> None:
    harness = make_harness()
    harness.make_topic("T", 2)
    harness.plane.set_bounds("T", 1, 1, 3)
    harness.store.times["T", 1] = [10, 20, 30]
    stats = TopicStats.decode(harness.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}).body)
    entry = stats.offsets[MessageQueue("T", "wire-a", 1)]
    assert (entry.min_offset, entry.max_offset, entry.last_update_ms) == (1, 3, 30)
    assert stats.offsets[MessageQueue("T", "wire-a", 0)].last_update_ms == 0
    assert harness.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Nope"}).code == 17


def test_consume_stats_and_time_span() -> None:
    harness = make_harness()
    harness.make_topic("T", 1)
    harness.plane.set_bounds("T", 0, 0, 3)
    harness.store.times["T", 0] = [START_MS - 300, START_MS - 200, START_MS - 100]
    harness.broker.offsets.put("G", "T", 0, 2, START_MS)
    for ext in ({}, {"topic": "T"}, {"topicList": "T;Nope"}):
        stats = ConsumeStats.decode(harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", **ext}).body)
        entry = stats.offsets[MessageQueue("T", "wire-a", 0)]
        assert (entry.broker_offset, entry.consumer_offset, entry.last_ms) == (3, 2, START_MS - 200)
        assert entry.pull_offset == 2, "nothing was pulled since the start"
    group_id, slot = harness.plane.group_find("G"), harness.broker.tables.slot("T", 0)
    for following, shown in ((1, 2), (3, 3)):
        harness.plane.pulled_table[group_id, slot] = following
        stats = ConsumeStats.decode(harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}).body)
        assert stats.offsets[MessageQueue("T", "wire-a", 0)].pull_offset == shown
        assert (entry.open_messages, entry.lag) == (None, 1)
    spans = read_object(harness.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}).body, "x")
    assert spans["consumeTimeSpanSet"] == [
        {
            "consumeTimeStamp": START_MS - 200,
            "delayTime": 100,
            "maxTimeStamp": START_MS - 100,
            "messageQueue": {"brokerName": "wire-a", "queueId": 0, "topic": "T"},
            "minTimeStamp": START_MS - 300,
        }
    ]


def test_messages_that_are_done_behind_an_open_one_are_no_lag() -> None:
    """The group has popped 8 of 10 messages, and acknowledged all of them but the first."""
    harness = make_harness()
    harness.make_topic("T", 1)
    harness.plane.set_bounds("T", 0, 0, 10)
    harness.store.times["T", 0] = [START_MS] * 10
    harness.broker.offsets.put("G", "T", 0, 0, START_MS)
    pair = harness.plane.group_find("G"), harness.broker.tables.slot("T", 0)
    harness.plane.pulled_table[pair], harness.plane.open_table[pair] = 8, 1
    answer = harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"})
    entry = ConsumeStats.decode(answer.body).offsets[MessageQueue("T", "wire-a", 0)]
    assert (entry.broker_offset - entry.consumer_offset, entry.open_messages, entry.lag) == (10, 1, 3)


def test_a_topic_that_a_list_names_again_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header has room for one name thousands of times."""
    harness = make_harness()
    harness.make_topic("T", 1)
    harness.plane.set_bounds("T", 0, 0, 3)
    harness.store.times["T", 0] = [START_MS] * 3
    harness.broker.offsets.put("G", "T", 0, 2, START_MS)
    looks: list[tuple[str, int, int]] = []
    store_time = harness.store.store_time

    def counted(topic: str, queue_id: int, offset: int) -> int:
        looks.append((topic, queue_id, offset))
        return store_time(topic, queue_id, offset)

    monkeypatch.setattr(harness.store, "store_time", counted)
    harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", "topicList": "T;" * 5000})
    assert looks == [("T", 0, 1)]


def test_progress_on_topics_that_are_no_longer_subscribed_to_is_left_out() -> None:
    """A group that was left behind would be shown as a growing backlog. With nobody online everything counts."""
    harness = make_harness()
    for topic in ("Now", "Once"):
        harness.make_topic(topic, 1)
        harness.broker.offsets.put("G", topic, 0, 2, START_MS)

    def topics(**ext: str) -> list[str]:
        body = harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", **ext}).body
        return sorted(queue.topic for queue in ConsumeStats.decode(body).offsets)

    assert topics() == ["Now", "Once"]
    harness.join("G", {"Now": "*"})
    assert topics() == ["Now"]
    assert topics(topic="Once") == []
    assert topics(topicList="Now;Once") == ["Now", "Once"], "a list is taken as it is"


def test_the_rate_of_consumption_does_not_depend_on_what_was_asked_before() -> None:
    harness = make_harness()
    for topic, offset in (("A", 10), ("B", 1_000_000)):
        harness.make_topic(topic, 1)
        harness.broker.offsets.put("G", topic, 0, offset, START_MS)

    def rate(**ext: str) -> float:
        body = harness.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", **ext}).body
        return ConsumeStats.decode(body).consume_tps

    assert rate(topic="A") == 0
    pair = harness.plane.group_find("G"), harness.broker.tables.slot("A", 0)
    assert pair[0] is not None
    harness.plane.counts.pulled[pair] = 20, 2000
    harness.tick(START_MS + 10_000)
    assert rate() == rate(topic="A") == rate() == 2
    assert rate(topic="B") == 0


def test_who_consumes_what() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("Online", {"T": "a"})
    harness.broker.offsets.put("Offline", "T", 0, 2, START_MS)
    groups = decode_group_list(harness.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"}).body)
    assert groups == ["Offline", "Online", "T"]
    body = harness.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "Offline"}).body
    assert decode_topic_list(body) == ["T"]
    assert read_object(body, "x")["brokerAddr"] == harness.broker.identity.address
    ask = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    bean = read_object(harness.ask(ask, {"group": "Online", "topic": "T"}).body, "x")
    assert bean["subscriptionData"]["subString"] == "a"
    assert harness.ask(ask, {"group": "Online"}).code == 1


def test_connections() -> None:
    harness = make_harness()
    harness.join("G", {"T": "*"}, peer(5), "c5", producer_groups=["P"])
    answer = harness.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
    body = ConsumerConnection.decode(answer.body)
    assert [(entry.client_id, entry.client_addr) for entry in body.connections] == [("c5", "127.0.0.1:40005")]
    assert body.subscriptions["T"].is_all
    assert harness.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "N"}).code == 206
    assert harness.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}).code == 0
    assert harness.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "N"}).code == 1
    data = read_object(harness.ask(RequestCode.GET_ALL_PRODUCER_INFO).body, "x")["data"]
    assert data["P"][0]["remoteIP"] == "127.0.0.1"


def test_runtime_info_has_stocks_keys() -> None:
    harness = make_harness()
    harness.now_ms += 90_061_000
    table = decode_kv_table(harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)
    own = {key for key in table if key.startswith("ha")}
    assert set(table) - own == RECORDED_RUNTIME_KEYS | {"commitLogDiskRatio_/store/commitlog"}
    assert (table["haRole"], table["haDegraded"], table["haWriteHold"]) == ("master", "false", "none")
    assert (table["timerReadBehind"], table["timerOffsetBehind"]) == ("0", "0"), "a guest's rows"
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["commitLogDiskRatio"] == "0.75"
    assert len(table["putTps"].split()) == 3


def test_runtime_info_has_the_delay_levels_whose_progress_is_known() -> None:
    """A level has a row once its queue has had a message."""
    harness = make_harness()
    harness.broker.topics.put(TopicConfig(SCHEDULE_TOPIC, 3, 3), START_MS)
    harness.plane.set_bounds(SCHEDULE_TOPIC, 0, 0, 5)
    harness.plane.set_bounds(SCHEDULE_TOPIC, 2, 0, 9)

    def rows() -> dict[str, str]:
        table = decode_kv_table(harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)
        return {key: value for key, value in table.items() if key.startswith("scheduleMessageOffset")}

    assert rows() == {"scheduleMessageOffset_1": "5,5", "scheduleMessageOffset_3": "9,9"}, "no worker: nothing waits"
    role = harness.plane.role(lib.RMQ_ROLE_DELAY)
    role.generation, role.counters[PROGRESS + 2] = 1, 4 + 1
    assert rows() == {"scheduleMessageOffset_3": "4,9"}, "nothing is known of level 1 yet"
    harness.plane.watermarks.tenure = Tenure(TenureState.SLAVE, 1).word
    assert rows() == {}


def test_runtime_info_says_which_folder_the_store_is(tmp_path: Path) -> None:
    harness = make_harness()
    assert harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).ext_fields == {}
    log = tmp_path / "commitlog"
    log.mkdir()
    folder = store_folder(StoreConfig(tmp_path))
    harness = make_harness(identity=replace(IDENTITY, store_folder=folder))
    assert harness.ask(RequestCode.GET_BROKER_RUNTIME_INFO).ext_fields == {
        "ringmqStoreRoot": str(tmp_path),
        "ringmqBootId": BOOT_ID.read_text().strip(),
        "ringmqCommitLogDevice": str(log.stat().st_dev),
        "ringmqCommitLogInode": str(log.stat().st_ino),
    }


def test_a_log_outside_the_store_is_not_told(tmp_path: Path) -> None:
    assert store_folder(StoreConfig(tmp_path, commit_log_directories=(tmp_path / "elsewhere",))) is None


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_as_stock_prints_them(count: int, text: str) -> None:
    assert format_bytes(count) == text
    assert format_runtime(0) == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"


def test_queries() -> None:
    harness = make_harness()
    harness.store.by_key["T", "k"] = KeyQuery([b"a", b"b", b"c"], 77, 88)
    ext = {"topic": "T", "key": "k", "maxNum": "2", "beginTimestamp": "0", "endTimestamp": "9"}
    answer = harness.ask(RequestCode.QUERY_MESSAGE, ext)
    assert answer.body == b"bc"
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "77", "indexLastUpdatePhyoffset": "88"}
    assert harness.ask(RequestCode.QUERY_MESSAGE, ext | {"_UNIQUE_KEY_QUERY": "true"}).body == b"abc"
    assert harness.ask(RequestCode.QUERY_MESSAGE, ext | {"key": "none"}).code == 22
    harness.store.messages[5] = b"stored"
    assert harness.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "5"}).body == b"stored"
    assert harness.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "6"}).code == 1
