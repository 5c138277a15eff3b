"""Which queue a row goes to, and how chunks are filled."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from ringmq.client import MessageQueue, RouteError
from ringmq.client.connections.routes import TopicRoute
from ringmq.spark_bridge.sink.chunk_builder import OPEN_CHUNKS_MAX, ChunkBuilder
from ringmq.spark_bridge.sink.errors import RowError
from ringmq.spark_bridge.sink.row_targets import ANY_QUEUE, TopicQueues, rows_by_target
from ringmq.store.record import java_hash
from tests.spark_bridge.test_row_encoder import elements

COUNT = 4


def find(topic: str) -> TopicRoute:
    brokers = ("a", "b") if topic == "Wide" else ("a",)
    queues = tuple(MessageQueue(topic, broker, number) for broker in brokers for number in range(COUNT))
    return TopicRoute(topic, () if topic == "Gone" else queues, (), {})


def targets(
    rows: list[dict[str, Any]], topic: str | None = "T", broker: str | None = None
) -> dict[int, tuple[str, int]]:
    """Row -> (topic, place in its queues)."""
    batch = pa.RecordBatch.from_pylist(rows)
    found: dict[int, tuple[str, int]] = {}
    for target, index in rows_by_target(batch, topic, TopicQueues(find, broker)):
        assert index.tolist() == sorted(index.tolist())
        found |= dict.fromkeys(index.tolist(), (target.topic, target.queue))
    assert sorted(found) == list(range(len(rows)))
    return found


def test_the_option_topic_goes_before_the_column() -> None:
    assert set(targets([{"value": b"x", "topic": "other"}]).values()) == {("T", ANY_QUEUE)}
    found = targets([{"value": b"x", "topic": name} for name in "ABA"], topic=None)
    assert [found[row][0] for row in range(3)] == ["A", "B", "A"]


def test_partition_names_the_queue() -> None:
    found = targets([{"value": b"x", "partition": queue} for queue in (2, 0, None, 2)])
    assert [found[row][1] for row in range(4)] == [2, 0, ANY_QUEUE, 2]


def test_sharding_keys_choose_as_stocks_hash_selector_does() -> None:
    keys = ["a", "order-1", "polygenelubricants", "", "ключ"]  # the third hashes to the smallest int
    found = targets([{"value": b"x", "shardingKey": key} for key in [*keys, None]])
    for row, key in enumerate(keys):
        remainder = abs(java_hash(key)) % COUNT * (1 if java_hash(key) >= 0 else -1)
        assert found[row][1] == abs(remainder), key
    assert found[len(keys)][1] == ANY_QUEUE


@pytest.mark.parametrize(
    ("rows", "topic", "error", "words"),
    [
        ([{"value": b"x", "partition": COUNT}], "T", RowError, ("row 0", "partition", "0 to 3")),
        ([{"value": b"x", "partition": -2}], "T", RowError, ("row 0", "partition", "-2")),
        ([{"value": b"x", "topic": "T"}, {"value": b"x", "topic": None}], None, RowError, ("row 1", "topic", "null")),
        ([{"value": b"x", "partition": 0}], "Wide", RouteError, ("Wide", "option broker")),
        ([{"value": b"x", "partition": 0}], "Gone", RouteError, ("Gone", "create it")),
    ],
)
def test_rows_without_a_queue_are_named(rows: Any, topic: Any, error: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        targets(rows, topic)
    assert all(word in str(caught.value) for word in words)


def test_chunks_are_full_in_order_and_spread_over_queues() -> None:
    values = [f"{number:05d}".encode() * 20 for number in range(500)]
    builder = ChunkBuilder("T", TopicQueues(find, None), 4096, 1 << 20)
    chunks = []
    for begin in range(0, 500, 100):
        chunks += builder.add(pa.record_batch({"value": pa.array(values[begin : begin + 100])}))
    chunks += builder.rest()
    assert [body for chunk in chunks for body, _ in elements(bytes(chunk.body))] == values
    assert all(len(chunk.body) > 3800 for chunk in chunks[:-1]) and all(len(chunk.body) <= 4096 for chunk in chunks)
    assert set(Counter(chunk.queue.queue_id for chunk in chunks)) == set(range(COUNT))
    assert sum(chunk.rows for chunk in chunks) == 500


def test_a_row_larger_than_a_chunk_gets_its_own() -> None:
    values = [b"small", b"L" * 20_000, b"small too"]
    builder = ChunkBuilder("T", TopicQueues(find, None), 4096, 1 << 20)
    chunks = [*builder.add(pa.record_batch({"value": pa.array(values)})), *builder.rest()]
    assert [body for chunk in chunks for body, _ in elements(bytes(chunk.body))] == values


def test_the_chunks_that_are_open_are_bounded() -> None:
    topics = [f"T{number}" for number in range(3 * OPEN_CHUNKS_MAX)]
    batch = pa.record_batch({"value": pa.array([b"x"] * len(topics)), "topic": pa.array(topics)})
    builder = ChunkBuilder(None, TopicQueues(find, None), 4096, 1 << 20)
    early = list(builder.add(batch))
    assert len(early) == 2 * OPEN_CHUNKS_MAX
    assert {chunk.queue.topic for chunk in [*early, *builder.rest()]} == set(topics)
