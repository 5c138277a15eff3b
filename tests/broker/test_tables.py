"""Loading: what a fresh plane and a restarted control learn from files, recovery and the plane."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.control_shell import resume_deletions
from ringmq.broker.control_wiring import saved_by, slave_tables_of
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.loading import load_into, load_state
from ringmq.broker.tables.offsets import OffsetKey
from ringmq.broker.tables.persistence import Persistence
from ringmq.broker.tables.protocols import TOPIC_BATCH_QUEUE, TOPIC_RECOVERED, TOPIC_RESERVED
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.stats import BrokerStats, Totals
from ringmq.broker.tables.topics import TopicTable
from ringmq.fastjson.reader import read_config
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.config_beans import DataVersion, SubscriptionGroupConfig, TopicConfig, TopicConfigTable
from ringmq.remoting.json_body import write_body
from ringmq.store.config_files import encode_config, load_config, persist_config
from ringmq.store.pending_deletions import read_deletions, write_deletions
from ringmq.store.topic_start_offsets import read_start_offsets, write_start_offsets
from tests.broker.fakes import START_MS, FakePlane, make_harness
from tests.operations import operations


@dataclass
class Bounds:
    min_offset: int
    max_offset: int
    is_batch: bool = False
    physical_end: int | None = None
    next_offset: int = 0

    def replay_from(self, append_offset: int) -> int:
        return append_offset if self.physical_end is None else self.physical_end


@dataclass
class Recovered:
    queues: dict[tuple[str, int], Bounds]
    append_offset: int = 9000


def stored(tmp_path: Path) -> BrokerConfig:
    """A store whose files know topic T, group G and an offset of it."""
    topic = {"topicName": "T", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "attributes": {}}
    persist_config(tmp_path, "topics.json", {"topicConfigTable": {"T": topic}})
    persist_config(tmp_path, "subscriptionGroup.json", {"subscriptionGroupTable": {"G": {"groupName": "G"}}})
    persist_config(tmp_path, "consumerOffset.json", {"offsetTable": {"T@G": {1: 7}}})
    names = {"storePathRootDir": str(tmp_path), "brokerName": "wire-a", "brokerClusterName": "GoldCluster"}
    return changed(BrokerConfig(), names)


def test_a_fresh_plane_gets_topics_bounds_groups_and_offsets(tmp_path: Path) -> None:
    plane = FakePlane()
    load_into(plane, stored(tmp_path), Recovered({("T", 1): Bounds(3, 9), ("T", 5): Bounds(0, 4)}))
    assert plane.word("T") == (6, 2, 2, 1)
    topic_id = plane.topic_find("T")
    assert topic_id is not None
    bounds = {}
    for queue_id in (0, 1, 5):
        slot = plane.queue_find(topic_id, queue_id)
        assert slot is not None
        bounds[queue_id] = (plane.queues[slot].min_offset, plane.queues[slot].max_offset)
    assert bounds == {0: (0, 0), 1: (3, 9), 5: (0, 4)}, "queues on disk beyond the configured number count too"
    assert plane.group_flags("G") == 0x7 | 1 << 8 | 16 << 16, "retryQueueNums and retryMaxTimes are in the word"
    assert plane.group_flags("TOOLS_CONSUMER") & 0xFF == 0x7
    assert list(plane.offset_table.values()) == [7]
    assert plane.word("BenchmarkTest")[1] == 1024


def test_ends_of_queues_that_dispatch_has_not_reached_are_published(tmp_path: Path) -> None:
    config, plane = stored(tmp_path), FakePlane()
    bounds = {("T", 0): Bounds(0, 5, next_offset=9), ("T", 1): Bounds(0, 5, next_offset=5)}
    load_into(plane, config, Recovered(bounds))
    assert [plane.queue(plane.queue_find(plane.topic_find("T"), queue)).log_end for queue in (0, 1)] == [9, 0]


def test_each_queue_gets_the_log_offset_from_which_records_are_its_own(tmp_path: Path) -> None:
    plane = FakePlane()
    load_into(plane, stored(tmp_path), Recovered({("T", 1): Bounds(3, 9, physical_end=700), ("T", 5): Bounds(0, 4)}))
    topic_id = plane.topic_find("T")
    assert topic_id is not None
    slots = {queue_id: plane.queue_find(topic_id, queue_id) for queue_id in (0, 1, 5)}
    found = {queue_id: plane.queues[slot].replay_from for queue_id, slot in slots.items() if slot is not None}
    assert found == {0: None, 1: 700, 5: 9000}, "None: nothing that is in the log already"


@pytest.mark.parametrize("seed", range(5))
def test_the_text_of_all_topics_follows_every_change(seed: int) -> None:
    topics, chance = make_harness().broker.topics, random.Random(seed)
    for now_ms in range(60):
        name = f"T\u00e9{chance.randrange(12)}"
        if chance.random() < 0.3:
            topics.delete(name, now_ms)
        else:
            attributes = {"message.type": "FIFO"} if chance.random() < 0.5 else {}
            topics.put(TopicConfig(name, chance.randrange(1, 4), 2, 6, attributes=attributes), now_ms)
        assert topics.body_json() == write_body(topics.body().to_json())
    chosen = {name: config for name, config in topics.body().topics.items() if name < "T"}
    some = TopicConfigTable(chosen, topics.data_version)
    assert topics.body_json([*some.topics, "Nobody"]) == write_body(some.to_json())


def test_announcing_one_change_among_many_topics_costs_little() -> None:
    harness = make_harness()
    for number in range(2000):
        harness.broker.topics.put(TopicConfig(f"T{number}"), START_MS)
    first = operations(lambda: harness.broker.topics.body_json())
    harness.broker.topics.put(TopicConfig("T7", 9, 9), START_MS)
    assert operations(lambda: harness.broker.topics.body_json()) < first / 20


STOCK_GROUPS = """{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":2
	},
	"forbiddenTable":{},
	"subscriptionGroupTable":{
		"G":{
			"attributes":{},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"G",
			"groupRetryPolicy":{
				"customizedRetryPolicy":{
					"next":[1000,5000]
				},
				"exponentialRetryPolicy":{
					"initial":1,
					"max":7200000,
					"multiplier":3
				},
				"type":"EXPONENTIAL"
			},
			"groupSysFlag":0,
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":16,
			"retryQueueNums":1,
			"subscriptionDataSet":[{
				"expression":"*",
				"expressionType":"TAG",
				"topic":"T",
				"version":7
			},{
				"topic":"U",
				"version":0
			}],
			"whichBrokerWhenConsumeSlowly":1
		}
	}
}"""
"""As fastjson 1.2.83 writes the beans: a Set stands on its key's line, its beans indent from there."""


def test_a_stock_file_with_every_bean_comes_through_as_it_is() -> None:
    groups = make_harness().broker.groups
    groups.load(read_config(STOCK_GROUPS), START_MS)
    assert encode_config("subscriptionGroup.json", groups.body(["G"])) == STOCK_GROUPS


def test_publishing_a_topic_looks_at_its_own_queues_alone() -> None:
    """A start publishes every topic: with a look at all queues for each, thousands of topics take minutes."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [f"T{number}" for number in range(100)]
    plane = FakePlane()
    tables = PlaneTables(plane)
    tables.remember({(Name(name), queue_id): (0, 5, 0) for name in names for queue_id in range(4)})
    compared = 0
    for name in names:
        tables.publish_topic(TopicConfig(Name(name), 4, 4), 0)
    assert plane.header.tables.queue_count == 400
    assert {entry.max_offset for entry in plane.queues} == {5}
    assert compared <= 4 * len(names)


def test_a_topic_without_configuration_is_dispatched_but_unknown_to_clients(tmp_path: Path) -> None:
    plane = FakePlane()
    load_into(plane, stored(tmp_path), Recovered({("Lost", 2): Bounds(5, 8)}))
    perm, reads, writes, flags = plane.word("Lost")
    assert (perm, reads, writes, flags) == (0, 0, 0, 1 | 2 | 4 | TOPIC_RECOVERED)
    harness = make_harness(plane=plane)
    assert "Lost" not in harness.broker.topics
    assert harness.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Lost"}).code == 17
    harness.make_topic("Lost", 3)
    assert plane.word("Lost") == (6, 3, 3, 1)
    state = harness.broker.tables.queue("Lost", 2)
    assert state is not None
    assert (state.min_offset, state.max_offset) == (5, 8), "its offsets go on"


def test_only_batch_topics_are_dispatched_to_batch_queues(tmp_path: Path) -> None:
    plane = FakePlane()
    config = stored(tmp_path)
    load_into(plane, config, Recovered({("Lost", 0): Bounds(0, 8), ("Packed", 0): Bounds(0, 8, is_batch=True)}))
    assert plane.word("Lost")[3] == 1 | 2 | 4 | TOPIC_RECOVERED
    assert plane.word("Packed")[3] == 1 | 2 | 4 | TOPIC_RECOVERED | TOPIC_BATCH_QUEUE
    harness = make_harness(plane=plane)
    harness.broker.apply_config(changed(harness.broker.config, {"brokerPermission": "2"}))
    assert plane.word("TBW102")[3] & (4 | TOPIC_BATCH_QUEUE) == 4, "a broker that may not be read"


def test_topics_that_only_control_knows_to_be_reserved_are_marked(tmp_path: Path) -> None:
    plane = FakePlane()
    load_into(plane, stored(tmp_path), Recovered({}))
    own = ("GoldCluster", "wire-a", "GoldCluster_REPLY_TOPIC", "TBW102", "rmq_sys_wheel_timer")
    assert all(plane.word(name)[3] & TOPIC_RESERVED for name in own)
    assert not plane.word("T")[3] & TOPIC_RESERVED
    harness = make_harness()
    harness.broker.topics.put(TopicConfig("C", 1, 1, attributes={"cleanup.policy": "COMPACTION"}), START_MS)
    assert harness.plane.word("C")[3] & TOPIC_RESERVED


def test_control_comes_back_to_what_the_plane_shows(tmp_path: Path) -> None:
    plane = FakePlane()
    load_into(plane, stored(tmp_path), Recovered({}))
    first = make_harness(plane=plane)
    first.make_topic("Unsaved", 3)
    topics = dict(plane.topics)
    second = make_harness(plane=plane)
    assert second.broker.topics.get("Unsaved") is not None
    assert dict(plane.topics) == topics, "nothing was made twice"


def test_a_deletion_outlives_the_control_that_began_it(tmp_path: Path) -> None:
    plane = FakePlane()
    config = stored(tmp_path)
    load_into(plane, config, Recovered({("T", 0): Bounds(0, 1000)}))
    first = make_harness(plane=plane)
    first.broker.tables.withdraw_topic("T")  # died before topics.json was written
    table = TopicTable(PlaneTables(plane), lambda topic: None, ClientNames(plane.header))
    table.load(load_config(tmp_path, "topics.json"), config, START_MS)
    assert "T" not in table
    assert plane.topic_find("T") is None, "its old queues still stand on disk"
    assert table.dirty


def test_tables_are_saved_before_answers_and_deleted_queues_later(tmp_path: Path) -> None:
    harness = make_harness()
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    harness.make_topic("T")
    persistence.save_tables()
    assert "T" in load_config(tmp_path, "topics.json")["topicConfigTable"]
    assert "TOOLS_CONSUMER" in load_config(tmp_path, "subscriptionGroup.json")["subscriptionGroupTable"]
    assert not harness.broker.topics.dirty
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    persistence.remove_deleted(START_MS + 1000)
    assert harness.store.deleted == ["T"]
    assert "T" not in load_config(tmp_path, "topics.json")["topicConfigTable"]
    assert len(harness.broker.deletions) == 0


def test_a_deletion_is_on_disk_until_its_queues_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness()
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    harness.make_topic("T")
    persistence.save_tables()
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    persistence.save_tables()
    assert read_deletions(tmp_path) == {"T"}, "before the answer"
    seen: list[frozenset[str]] = []
    done = harness.broker.deletions.done

    def look_and_forget(topic: str) -> None:
        seen.append(read_deletions(tmp_path))
        done(topic)

    monkeypatch.setattr(harness.store, "delete_topic", lambda topic: seen.append(read_deletions(tmp_path)))
    monkeypatch.setattr(harness.broker.deletions, "done", look_and_forget)
    persistence.remove_deleted(START_MS + 1000)
    assert seen == [{"T"}, frozenset()], "gone before the name is free: a new topic is not deleted by a start"
    assert len(harness.broker.deletions) == 0


def test_where_a_new_topic_of_a_deleted_name_would_begin_is_on_disk_before_the_name_is_free(
    tmp_path: Path,
) -> None:
    write_start_offsets(tmp_path, {"Earlier": 50, "Overtaken": 7})
    harness = make_harness()
    harness.store.log_begin, harness.store.appended, harness.store.dispatched = 10, 100, 100
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    persistence.load_deletions()
    harness.make_topic("T")
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    persistence.remove_deleted(START_MS + 1000)
    assert read_start_offsets(tmp_path) == {"Earlier": 50, "T": 100}, "what the log has no bytes of goes"
    harness.make_topic("S")
    harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    harness.plane.watermarks.tenure = Tenure(TenureState.SLAVE).word
    persistence.remove_deleted(START_MS + 3000)
    assert "S" in harness.store.deleted
    assert read_start_offsets(tmp_path) == {"Earlier": 50, "T": 100}, "a slave's log may be ahead of its tables"


def test_many_deletions_take_a_part_of_each_tick_and_few_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    topics = [f"T{number}" for number in range(5)]
    harness.store.on_disk, harness.store.appended, harness.store.dispatched = set(topics), 100, 100
    harness.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    clock_s = [0.0]
    persistence = Persistence(tmp_path, saved_by(harness.broker), lambda: clock_s[0])
    written: list[tuple[str, int]] = []
    for name, write in (("write_start_offsets", write_start_offsets), ("write_deletions", write_deletions)):

        def count_and_write(root: Path, content: Any, name: str = name, write: Any = write) -> None:
            written.append((name, len(content)))
            write(root, content)

        monkeypatch.setattr(f"ringmq.broker.tables.persistence.{name}", count_and_write)
    born: list[bool] = []

    def delete_topic(topic: str) -> None:
        clock_s[0] += 0.03
        born.append(topic in read_start_offsets(tmp_path))
        harness.store.deleted.append(topic)

    monkeypatch.setattr(harness.store, "delete_topic", delete_topic)
    persistence.remove_deleted(START_MS + 1000)
    assert len(harness.store.deleted) == 2, "requests wait meanwhile"
    assert written == [("write_deletions", 5), ("write_start_offsets", 5), ("write_deletions", 3)]
    assert (
        read_deletions(tmp_path) == harness.broker.deletions.topics() == set(topics).difference(harness.store.deleted)
    )
    for _ in range(2):
        persistence.remove_deleted(START_MS + 1250)
    assert sorted(harness.store.deleted) == topics
    assert not harness.broker.deletions
    assert born == [True] * 5, "a start in between must not take the old records for lost units of a new topic"


@pytest.mark.parametrize("by", ["an operator", "a start", "the master"])
def test_many_deletions_walk_over_no_other_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    harness = make_harness()
    broker, topics = harness.broker, [f"T{number}" for number in range(20)]
    broker.offsets.put("G", "TBW102", 0, 3, START_MS)
    for topic in topics:
        if by == "the master":
            harness.make_topic(topic)
        else:
            broker.tables.publish_queue(topic, 0, batch=False)
        broker.offsets.put("G", topic, 0, 3, START_MS)
    walks, table = [0], broker.offsets.table

    def walk() -> dict[OffsetKey, dict[int, int]]:
        walks[0] += 1
        return table()

    monkeypatch.setattr(broker.offsets, "table", walk)
    if by == "an operator":
        harness.store.on_disk = set(topics)
        harness.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    elif by == "a start":
        write_deletions(tmp_path, topics)
        resume_deletions(broker, Persistence(tmp_path, saved_by(broker)), set(topics))
    else:
        slave_tables_of(broker).take_topics(TopicConfigTable({}, DataVersion(1, 0, 1)), START_MS)
    assert broker.deletions.topics() == set(topics)
    assert walks == [0]
    assert table() == {("TBW102", "G"): {0: 3}}


def test_topics_whose_queues_are_gone_are_free_although_another_one_s_will_not_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    harness.make_topic("A")
    harness.make_topic("B")
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    for topic in ("A", "B"):
        harness.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    def delete_topic(topic: str) -> None:
        if topic == "B":
            raise PermissionError(topic)

    monkeypatch.setattr(harness.store, "delete_topic", delete_topic)
    with pytest.raises(PermissionError):
        persistence.remove_deleted(START_MS + 1000)
    assert read_deletions(tmp_path) == harness.broker.deletions.topics() == {"B"}


def test_a_start_goes_on_with_deletions_but_not_with_topics_that_exist(tmp_path: Path) -> None:
    plane = FakePlane()
    config = stored(tmp_path)  # with T
    persist_config(tmp_path, "consumerOffset.json", {"offsetTable": {"Gone@G": {0: 7}, "T@G": {0: 5}}})
    write_deletions(tmp_path, ["Gone", "T"])
    load_into(plane, config, Recovered({("Gone", 0): Bounds(0, 1000), ("T", 0): Bounds(0, 10)}))
    harness = make_harness(plane=plane)
    broker = harness.broker
    load_state(tmp_path, config, broker.topics, broker.groups, broker.offsets, START_MS, fresh=False)
    persistence = Persistence(tmp_path, saved_by(broker))
    resume_deletions(broker, persistence, {"Gone", "T"})
    assert broker.deletions.topics() == {"Gone"}
    assert plane.topic_find("Gone") is None
    assert plane.word("T")[3] == 1, "nobody was told of its deletion, or another broker made it again"
    persistence.save_tables()
    persistence.save_offsets()
    assert read_deletions(tmp_path) == {"Gone"}
    assert list(load_config(tmp_path, "consumerOffset.json")["offsetTable"]) == ["T@G"]


@pytest.mark.parametrize("junk", ["{", '{"T": 1}', "[1]"])
def test_a_file_that_names_no_deletions_is_told_and_passed_over(
    tmp_path: Path, junk: str, log_text: Callable[[], str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "ringmqDeletions.json").write_text(junk)
    harness = make_harness()
    resume_deletions(harness.broker, Persistence(tmp_path, saved_by(harness.broker)), set())
    assert "ringmqDeletions.json" in log_text()
    assert not harness.broker.deletions


def test_offsets_are_saved_every_5_s_when_they_changed(tmp_path: Path) -> None:
    harness = make_harness()
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    file = tmp_path / "config" / "consumerOffset.json"
    harness.broker.offsets.put("G", "TBW102", 0, 3, START_MS)

    def save(now_ms: int) -> None:
        persistence.save_offsets_if_due(now_ms)
        persistence.save_some()

    save(START_MS)
    assert '"TBW102@G":{0:3' in file.read_text()
    harness.broker.offsets.put("G", "TBW102", 0, 4, START_MS)
    save(START_MS + 4999)
    assert "0:3" in file.read_text()
    save(START_MS + 5000)
    assert "0:4" in file.read_text()
    file.unlink()
    save(START_MS + 10_000)
    assert not file.exists()


def test_a_shorter_interval_counts_from_the_last_save_on(tmp_path: Path) -> None:
    harness = make_harness({"flushConsumerOffsetInterval": "86400000"})
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    persistence.save_offsets_if_due(START_MS)
    harness.broker.offsets.put("G", "TBW102", 0, 4, START_MS)
    persistence.save_offsets_if_due(START_MS + 9000)
    assert not (tmp_path / "config" / "consumerOffset.json").exists()
    assert harness.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"flushConsumerOffsetInterval=9000").code == 0
    persistence.save_offsets_if_due(START_MS + 9000)
    persistence.save_some()
    assert (tmp_path / "config" / "consumerOffset.json").exists()


def test_rates_and_totals() -> None:
    stats = BrokerStats(START_MS)
    for second in range(61):
        stats.observe(Totals(put_messages=second * 10))
        stats.sample(START_MS + second * 1000)
    assert stats.tps("put_messages") == "10.0 10.0 10.0"
    stats.observe(Totals(put_messages=5))
    assert stats.totals.put_messages == 605, "a restarted worker begins at 0, the total does not"
    assert stats.rate_of("put", "T", 100, 0) == 0.0
    assert stats.rate_of("put", "T", 400, 3000) == 100.0


def test_midnight_moves_the_totals() -> None:
    day_ms = 86_400_000
    stats = BrokerStats(START_MS)
    stats.observe(Totals(put_messages=7))
    stats.sample(START_MS + day_ms)
    stats.observe(Totals(put_messages=9))
    stats.sample(START_MS + 2 * day_ms)
    assert (stats.yesterday_morning.put_messages, stats.today_morning.put_messages) == (7, 9)


def test_topics_json_is_stocks_text_after_every_change(tmp_path: Path) -> None:
    harness = make_harness()
    harness.make_topic("T")
    first = harness.broker.topics.file_text()
    harness.make_topic("T", 8)
    harness.make_topic("U")
    harness.broker.topics.delete("U", START_MS)
    for text in (first, harness.broker.topics.file_text()):
        assert encode_config("topics.json", json.loads(text)) == text
    table = json.loads(text)["topicConfigTable"]
    assert table["T"]["readQueueNums"] == 8
    assert "U" not in table


def test_config_files_are_json(tmp_path: Path) -> None:
    harness = make_harness()
    Persistence(tmp_path, saved_by(harness.broker)).save_tables()
    assert json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]["TBW102"]["perm"] == 7


def test_texts_of_all_groups_follow_every_change() -> None:
    harness = make_harness()
    groups = harness.broker.groups
    for step in range(6):
        if step < 4:
            groups.put(SubscriptionGroupConfig(f"G{step % 2}", retry_max_times=step), START_MS)
        elif step == 4:
            groups.set_forbidden("G0", "T", True, START_MS)
        else:
            groups.delete("G1", START_MS)
        assert groups.file_text() == encode_config("subscriptionGroup.json", groups.body())
        assert groups.body_json() == write_body(groups.body())
        assert groups.body_json(["G0"]) == write_body(groups.body(["G0"]))
        assert groups.names() == sorted(group.group_name for group in groups)


def test_what_requests_may_forbid_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.broker.tables.groups.FORBIDDEN_MAX", 3)
    harness = make_harness()
    codes = [
        harness.ask(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "G", "topic": f"T{n}", "readable": "false"}
        ).code
        for n in range(4)
    ]
    assert codes == [0, 0, 0, 1]
    readable = {"group": "G", "topic": "T1", "readable": "true"}
    assert harness.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, readable).code == 0


def test_large_tables_are_written_in_steps(tmp_path: Path) -> None:
    harness = make_harness()
    persistence = Persistence(tmp_path, saved_by(harness.broker))
    for number in range(150):
        harness.broker.topics.put(TopicConfig(f"T{number}", 1, 1), START_MS)
        harness.broker.groups.put(SubscriptionGroupConfig(f"G{number}"), START_MS)
    steps = persistence.saving_tables()
    costs, late = [], []

    def one() -> None:
        try:
            next(steps)
        except StopIteration:
            late.append("done")

    while not late:
        costs.append(operations(one))
        if len(costs) == 3:
            harness.broker.topics.put(TopicConfig("Meanwhile", 1, 1), START_MS)
    assert len(costs) >= 10
    assert max(costs) < 100_000
    assert harness.broker.topics.dirty and persistence.tables_dirty
    table = load_config(tmp_path, "topics.json")["topicConfigTable"]
    assert "T149" in table and "Meanwhile" not in table
    assert (tmp_path / "config" / "subscriptionGroup.json").read_text() == harness.broker.groups.file_text()
    persistence.save_tables()
    assert (tmp_path / "config" / "topics.json").read_text() == harness.broker.topics.file_text()
    assert not persistence.tables_dirty
