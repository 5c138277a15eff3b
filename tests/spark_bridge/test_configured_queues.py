"""Topics and queues that never had a message: they are there by files as they are over tcp."""

import json
import logging
from pathlib import Path

import pytest

from ringmq.spark_bridge.configured_queues import FILE
from ringmq.spark_bridge.limits import read_spans, starting_offsets
from ringmq.spark_bridge.option_table import OptionError
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.store_catalog import StoreCatalog
from ringmq.store.config_files import persist_config
from tests.spark_bridge.made_store import MadeStore

BROKER = "DEFAULT_BROKER"
READ, WRITE, INHERIT = 4, 2, 1


def configure(root: Path, topics: dict[str, tuple[int, int]]) -> None:
    """Topics by name: readable queues, permissions."""
    table = {
        name: {"perm": perm, "readQueueNums": queues, "topicName": name, "writeQueueNums": queues}
        for name, (queues, perm) in topics.items()
    }
    persist_config(root, FILE, {"topicConfigTable": table})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Orders has messages in three of four queues, Empty in none of two."""
    made = MadeStore(tmp_path / "store")
    for number in range(6):
        made.append(topic="Orders", queue_id=number % 3, stored_ms=1000)
    topics = {"Orders": (4, READ | WRITE), "Empty": (2, READ | WRITE), "WriteOnly": (2, WRITE)}
    own = {"broker-a": (1, READ | WRITE | INHERIT), "SELF_TEST_TOPIC": (1, READ | WRITE)}
    own |= {"cluster-a": (1, INHERIT), "cluster-a_REPLY_TOPIC": (1, READ | WRITE)}
    configure(made.root, topics | own)
    return made.root


def options_of(root: Path, **options: str) -> ReadOptions:
    return parse_options({"store": str(root)} | options)


def queues(root: Path, **options: str) -> set[tuple[str, int]]:
    return {(key.topic, key.queue_id) for key in StoreCatalog(options_of(root, **options)).queues()}


def test_an_empty_topic_is_found_and_has_no_rows(root: Path) -> None:
    options = options_of(root, subscribe="Empty")
    catalog = StoreCatalog(options)
    assert read_spans(catalog, options) == []
    assert starting_offsets(catalog, options) == {QueueKey("Empty", BROKER, number): 0 for number in range(2)}
    key = QueueKey("Empty", BROKER, 1)
    assert (catalog.bounds(key), catalog.offset_at(key, 0)) == ((0, 0), None)


def test_offsets_by_queue_name_the_empty_ones_too(root: Path) -> None:
    def spans(numbers: range) -> int:
        starting = json.dumps({"Orders": {str(number): 0 for number in numbers}})
        options = options_of(root, subscribe="Orders", startingOffsets=starting)
        return len(read_spans(StoreCatalog(options), options))

    assert spans(range(4)) == 3
    with pytest.raises(OptionError, match=f"does not name {BROKER}:3 of Orders"):
        spans(range(3))


def test_a_time_that_an_empty_queue_does_not_reach(root: Path) -> None:
    options = options_of(root, subscribe="Orders", startingTimestamp="500")
    with pytest.raises(OptionError, match=f"{BROKER}:3 of Orders has no message"):
        read_spans(StoreCatalog(options), options)


def test_whose_queues_are_seen(root: Path) -> None:
    users = {("Orders", number) for number in range(4)} | {("Empty", 0), ("Empty", 1)}
    assert queues(root) == queues(root, subscribePattern=".*") == users
    assert queues(root, subscribe="broker-a") == {("broker-a", 0)}
    assert queues(root, includeSystemTopics="true") == users | {
        ("broker-a", 0),
        ("SELF_TEST_TOPIC", 0),
        ("cluster-a_REPLY_TOPIC", 0),
    }


@pytest.mark.parametrize("text", ["", "{", '{"topicConfigTable":'])
def test_a_spoilt_file_gives_way_to_the_one_before(root: Path, text: str) -> None:
    configure(root, {"Later": (1, READ)})
    (root / "config" / FILE).write_text(text)
    assert ("Empty", 0) in queues(root)


@pytest.mark.parametrize("text", ["[]", '{"topicConfigTable":{"Empty":{"perm":6}}}', '{"topicConfigTable":3}'])
def test_a_file_of_another_form_is_told_of(root: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (root / "config" / FILE).write_text(text)
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        assert queues(root) == {("Orders", number) for number in range(3)}
    assert f"queues without messages are missing, because {FILE}" in caplog.text
