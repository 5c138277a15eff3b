"""An impossible entry in a config file is left out and named with the file, the others count, the file is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import first_tenure
from ringmq.broker.config.relations import changed
from ringmq.broker.tables import groups, offsets, topics
from ringmq.broker.tables.loading import load_into
from ringmq.broker.tables.publication import PlaneTables
from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode
from ringmq.store.config_files import load_config
from ringmq.store.recovery_queues import QueueState
from ringmq.store.recovery_state import RecoveredStore
from tests.broker.fakes import FakePlane
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.waiting import wait_until

GOOD_TOPIC = {"topicName": "Good", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}


def topic(name: str, **entry: Any) -> dict[str, Any]:
    return {"topicConfigTable": {"Good": GOOD_TOPIC, name: {**GOOD_TOPIC, "topicName": name, **entry}}}


def group(name: str, **entry: Any) -> dict[str, Any]:
    return {"subscriptionGroupTable": {"good": {"groupName": "good"}, name: {"groupName": name, **entry}}}


def offset(queue_id: object, value: object) -> dict[str, Any]:
    return {"offsetTable": {"Good@good": {"0": 7, queue_id: value}}}


LONG = "g" * 256
"""A name that exceeds the shared tables. Stock takes names of any length."""


def offsets_of(name: str) -> dict[str, Any]:
    return {"offsetTable": {name: {"0": 5}, "Good@good": {"0": 7}}}


CASES = [
    (topics.FILE, topic("T", perm="RW"), "perm"),
    (topics.FILE, topic("T", readQueueNums=2_000_000_000), "readQueueNums"),
    (topics.FILE, topic("T", writeQueueNums=-1), "writeQueueNums"),
    (topics.FILE, topic("T", order="perhaps"), "order"),
    (topics.FILE, topic("../T"), "folder"),
    (topics.FILE, topic("x" * 256), "folder"),
    (topics.FILE, {"topicConfigTable": {"Good": GOOD_TOPIC, "T": 5}}, "'T' is left out"),
    (topics.FILE, {"topicConfigTable": {"Good": GOOD_TOPIC, "../T": {**GOOD_TOPIC, "topicName": "T"}}}, "folder"),
    (topics.FILE, {"topicConfigTable": {"Good": GOOD_TOPIC}, "dataVersion": {"timestamp": "x"}}, "dataVersion"),
    (groups.FILE, group("g", retryQueueNums=70_000), "retryQueueNums"),
    (groups.FILE, group("g", retryMaxTimes=[]), "retryMaxTimes"),
    (groups.FILE, group("g" * 300), "bytes of UTF-8"),
    (groups.FILE, {**group("x"), "forbiddenTable": {"good": {"T": "no"}}}, "forbidden"),
    (groups.FILE, {**group("x"), "forbiddenTable": {"good": {"T": 1 << 70}}}, "forbidden"),
    (groups.FILE, {**group("x"), "forbiddenTable": {LONG: {"T": 4}}}, "bytes of UTF-8"),
    (groups.FILE, {"subscriptionGroupTable": {LONG: {"groupName": "good"}}}, "bytes of UTF-8"),
    (groups.FILE, {"subscriptionGroupTable": {"": {"groupName": "good"}}}, "bytes of UTF-8"),
    (offsets.FILE, offset("first", 5), "first"),
    (offsets.FILE, offset("-1", 5), "queue id"),
    (offsets.FILE, offset("99999999999", 5), "queue id"),
    (offsets.FILE, offset("1", None), "offset"),
    (offsets.FILE, offset("1", 1e400), "offset"),
    (offsets.FILE, offset("1", 1 << 70), "offset"),
    (offsets.FILE, offset("1", -9), "-9"),
    (offsets.FILE, {"offsetTable": {"Good@good": {"0": 7}, "nobody": {"0": 5}}}, "nobody"),
    (offsets.FILE, offsets_of(f"Good@{LONG}"), "bytes of UTF-8"),
    (offsets.FILE, offsets_of("Good@" + "\u4e2d" * 86), "bytes of UTF-8"),
    (offsets.FILE, offsets_of(f"Gone@{LONG}"), "bytes of UTF-8"),
    (offsets.FILE, offsets_of("Good@"), "bytes of UTF-8"),
    (offsets.FILE, offsets_of("@good"), "folder"),
    (offsets.FILE, offsets_of("T" * 256 + "@good"), "folder"),
]


@pytest.mark.parametrize(("file", "value", "words"), CASES, ids=range(len(CASES)))
def test_an_impossible_entry_is_left_out_and_named(
    tmp_path: Path, file: str, value: dict[str, Any], words: str
) -> None:
    (tmp_path / "config").mkdir()
    text = json.dumps(value)
    (tmp_path / "config" / file).write_text(text)
    if file == offsets.FILE:
        (tmp_path / "config" / topics.FILE).write_text(json.dumps({"topicConfigTable": {"Good": GOOD_TOPIC}}))
        (tmp_path / "config" / groups.FILE).write_text(json.dumps(group("nobody")))
    plane, lines = FakePlane(), []  # type: ignore[var-annotated]
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)})
    load_into(plane, config, RecoveredStore("clean"), lines.append)
    assert len(lines) == 1
    assert f"config/{file}: " in lines[0] and words in lines[0] and f"{file}.damaged" in lines[0]
    assert (tmp_path / "config" / f"{file}.damaged").read_text() == text
    if file == topics.FILE:
        assert plane.topic_find("Good") is not None and plane.topic_find("T") is None
    if file == offsets.FILE:
        assert list(plane.offset_table.values()) == [7]


@pytest.mark.parametrize("text", ["", "{", "[1]", None])
def test_a_topic_that_the_older_copy_lacks_is_made_from_its_queues(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "config").mkdir()
    if text is not None:
        (tmp_path / "config" / topics.FILE).write_text(text)
    (tmp_path / "config" / f"{topics.FILE}.bak").write_text(json.dumps({"topicConfigTable": {"Good": GOOD_TOPIC}}))
    (tmp_path / "config" / "ringmqDeletions.json").write_text('["Deleted"]')
    found = RecoveredStore("clean")
    for name in ("New", "Deleted", "Good"):
        found.queues[name, 2] = QueueState(name, 2, False, 0, 5, 100)
    plane, lines = FakePlane(), []  # type: ignore[var-annotated]
    load_into(plane, changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)}), found, lines.append)
    assert topics.FILE in lines[0] and f"{topics.FILE}.bak is used in its place" in lines[0]
    assert lines[1].startswith(f"{topics.FILE} lacked New: made again")
    assert len(lines) == 2
    live = {topic.topic_name: topic for topic in PlaneTables(plane).live_topics()}
    assert (live["New"].read_queue_nums, live["New"].write_queue_nums, live["New"].perm) == (3, 3, 6)
    assert live["Good"].read_queue_nums == 2 and "Deleted" not in live


@pytest.mark.parametrize("text", ["", None])
def test_groups_of_a_lost_file_are_made_from_their_offsets(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / topics.FILE).write_text(json.dumps({"topicConfigTable": {"Good": GOOD_TOPIC}}))
    table = {"Good@billing": {"0": 7}, "Gone@audit": {"0": 3}, "Good@CID_RMQ_SYS_TRANS": {"0": 1}}
    (tmp_path / "config" / offsets.FILE).write_text(json.dumps({"offsetTable": table}))
    if text is not None:
        (tmp_path / "config" / groups.FILE).write_text(text)
    plane, lines = FakePlane(), []  # type: ignore[var-annotated]
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)})
    load_into(plane, config, RecoveredStore("clean"), lines.append)
    assert [line.split(":")[0] for line in lines] == ["subscriptionGroup.json lacked audit, billing"]
    assert plane.group_find("billing") is not None and plane.group_find("audit") is not None
    assert sorted(plane.offset_table.values()) == [1, 7]
    slave = changed(config, {"brokerRole": "SLAVE", "brokerId": "1"})
    lines.clear()
    plane = FakePlane()
    plane.watermarks.tenure = first_tenure(slave).word
    load_into(plane, slave, RecoveredStore("clean"), lines.append)  # type: ignore[arg-type]
    assert lines == [], "a slave gets its groups from the master"


def test_a_group_that_no_table_can_hold_is_not_made_from_its_offsets(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / topics.FILE).write_text(json.dumps({"topicConfigTable": {"Good": GOOD_TOPIC}}))
    table = {f"Gone@{LONG}": {"0": 3}, "Gone@": {"0": 4}, "Gone@audit": {"0": 5}}
    (tmp_path / "config" / offsets.FILE).write_text(json.dumps({"offsetTable": table}))
    plane, lines = FakePlane(), []  # type: ignore[var-annotated]
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)})
    load_into(plane, config, RecoveredStore("clean"), lines.append)
    assert len(lines) == 2 and lines[0].count("is left out") + lines[0].count("are left out") == 2
    assert lines[1].startswith("subscriptionGroup.json lacked audit: made again")


def test_the_name_of_an_entry_is_its_key(tmp_path: Path) -> None:
    """Stock finds topics and groups by the key."""
    (tmp_path / "config").mkdir()
    table = {"Key": {**GOOD_TOPIC, "topicName": "Other"}}
    (tmp_path / "config" / topics.FILE).write_text(json.dumps({"topicConfigTable": table}))
    value = {"subscriptionGroupTable": {"key": {"groupName": LONG, "retryMaxTimes": 3}}}
    (tmp_path / "config" / groups.FILE).write_text(json.dumps(value))
    plane, lines = FakePlane(), []  # type: ignore[var-annotated]
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)})
    load_into(plane, config, RecoveredStore("clean"), lines.append)
    assert lines == []
    assert plane.topic_find("Key") is not None and plane.topic_find("Other") is None
    assert plane.group_flags("key")


def test_groups_with_impossible_names_in_each_file_do_not_stop_a_start(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    names = {f"Good@{LONG}": {"0": 1}, "Good@": {"0": 2}, f"Gone@{LONG}": {"0": 3}, "Good@good": {"0": 7}}
    for file, value in (
        (topics.FILE, {"topicConfigTable": {"Good": GOOD_TOPIC}}), (offsets.FILE, {"offsetTable": names}),
        ("delayOffset.json", {"offsetTable": {"x": "y", "1": 1 << 70, "99": 4}}),
    ):  # fmt: skip
        (store / "config" / file).write_text(json.dumps(value))
    with RunningBroker(store, {"messageDelayLevel": "1s"}) as broker, RawClient(broker.address) as client:
        (line,) = [line for line in broker.log_tail(20_000).splitlines() if f"config/{offsets.FILE}: " in line]
        assert line.count("left out") == 3 and "1 to 255 bytes" in line
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "good", "topic": "Good", "queueId": 0})
        assert answer.ext_fields["offset"] == "7"
        assert client.send("Good", b"later", pairs={"DELAY": "1"}).code == 0
        wait_until(lambda: client.pull("Good").code == 0, "the delayed message comes")
        (line,) = [line for line in broker.log_path.read_text().splitlines() if "config/delayOffset.json: " in line]
        assert line.count("is left out") == 3 and "delayOffset.json.damaged" in line
        assert broker.stop() == 0
    written = load_config(store, offsets.FILE)["offsetTable"]
    assert written.keys() == {"Good@good"}


def test_a_broker_starts_with_them_and_writes_sound_files(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "config").mkdir(parents=True)
    for file, value in (
        (topics.FILE, topic("Bad", perm="RW")), (groups.FILE, group("bad", retryQueueNums=-1)),
        (offsets.FILE, offset("-1", 5)), ("delayOffset.json", {"offsetTable": {"x": "y"}}),
    ):  # fmt: skip
        (store / "config" / file).write_text(json.dumps(value))
    with RunningBroker(store, SMALL) as broker:
        said = broker.log_tail(20_000)
        for file, name in ((topics.FILE, "'Bad'"), (groups.FILE, "'bad'"), (offsets.FILE, "'-1'")):
            lines = [line for line in said.splitlines() if f"config/{file}: " in line]
            assert len(lines) == 1 and name in lines[0], said
        assert "Traceback" not in said
        assert broker.stop() == 0
    written = json.loads((store / "config" / topics.FILE).read_text())["topicConfigTable"]
    assert "Good" in written and "Bad" not in written
    with RunningBroker(store, SMALL) as broker:
        assert ".damaged" not in broker.log_tail(20_000).replace(said, "")
        assert broker.stop() == 0
