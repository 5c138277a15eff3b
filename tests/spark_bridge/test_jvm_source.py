"""The JVM source gives the rows of the Python source, whatever is pushed into it, and leaves `ringmq` as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge.schema import COLUMNS, spark_schema
from tests.spark_bridge.jvm_kit import Read, made, plan_of, read, rows, spark
from tests.spark_bridge.made_store import MadeStore
from tests.spark_bridge.test_configured_queues import configure

__all__ = ["made", "read", "spark"]

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_columns_are_those_of_the_table(spark: Any, read: Read) -> None:
    from pyspark.sql.types import StructType

    assert read("ringmq-jvm").schema == StructType.fromDDL(spark_schema(tuple(COLUMNS)))


@pytest.mark.parametrize("options", [{}, {"includeHeaders": True}])
def test_default_columns(spark: Any, golden_store: Path, options: dict[str, str]) -> None:
    frames = [
        spark.read.format(name).options(store=str(golden_store), **options).load() for name in ("ringmq", "ringmq-jvm")
    ]
    assert frames[0].schema == frames[1].schema


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeSystemTopics": True},
        {"minPartitions": 9},
        {"maxRecordsPerPartition": 100},
        {"verifyCrc": True},
        {"subscribe": "GoldBatchCQ,GoldA"},
        {"subscribePattern": "Gold[AC].*"},
        {"assign": '{"GoldA": [0]}'},
    ],
)
def test_rows_of_the_python_source(read: Read, options: dict[str, object]) -> None:
    expected = rows(read("ringmq", **options))
    assert expected
    assert rows(read("ringmq-jvm", **options)) == expected


def test_topics_and_queues_without_messages(read: Read, tmp_path: Path) -> None:
    """They are known by the broker's configuration alone."""
    made = MadeStore(tmp_path / "store")
    for number in range(6):
        made.append(topic="Orders", queue_id=number % 3)
    configure(made.root, {"Orders": (4, 6), "Empty": (2, 6), "WriteOnly": (1, 2), "broker-a": (1, 7)})
    every, some = (json.dumps({"Orders": {str(number): 0 for number in range(count)}}) for count in (4, 3))
    for options in (
        {"subscribe": "Orders,Empty"},
        {"subscribe": "Empty"},
        {"subscribe": "broker-a"},
        {"assign": '{"Orders": [2, 3]}'},
        {"subscribe": "Orders", "startingOffsets": every},
        {"subscribePattern": ".*"},
    ):
        expected = rows(read("ringmq", store=made.root, **options))
        assert rows(read("ringmq-jvm", store=made.root, **options)) == expected, options
    for options in ({"subscribe": "WriteOnly"}, {"assign": '{"Orders": [4]}'}, {"startingOffsets": some}):
        for name in ("ringmq", "ringmq-jvm"):
            with pytest.raises(Exception, match=r"option (subscribe|assign|startingOffsets)"):
                read(name, store=made.root, **options).collect()


FILTERS = [
    "topic = 'GoldA'",
    "topic IN ('GoldA', 'GoldBatchCQ', 'nowhere')",
    "topic > 'GoldB' AND partition < 2",
    "partition = 1",
    "2 <= partition",
    "offset >= 40 AND offset < 60",
    "offset = 7",
    "offset IN (3, 900, 17)",
    "topic = 'GoldBatchCQ' AND offset BETWEEN 31 AND 77",
    "topic = 'GoldA' AND tags = 'TagA'",
    "topic = 'GoldA' OR offset < 3",
    "NOT (topic = 'GoldA') AND partition IS NOT NULL",
    "offset < 0",
    "length(value) > 1000",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters(read: Read, condition: str) -> None:
    expected = rows(read("ringmq").where(condition))
    assert rows(read("ringmq-jvm").where(condition)) == expected


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_filters_by_time(read: Read, manifest: list[dict[str, Any]], op: str) -> None:
    time_ms = manifest[len(manifest) // 2]["storeTimestamp"]
    condition = f"timestamp {op} timestamp_millis({time_ms})"
    expected = rows(read("ringmq").where(condition))
    assert expected
    assert rows(read("ringmq-jvm").where(condition)) == expected


def test_what_is_pushed_is_shown(read: Read) -> None:
    frame = read("ringmq-jvm").where("topic = 'GoldA' AND offset >= 10").select("offset").limit(5)
    plan = plan_of(frame)
    assert "topic = 'GoldA', offset >= 10]" in plan
    assert "PushedLimit: LIMIT 5" in plan
    physical = plan.partition("== Physical Plan ==")[2]
    assert "Filter (" not in physical, "nothing is left for Spark to check"
    assert "BatchScan ringmq-jvm[offset" in physical, "no other column is read"
    assert [row["offset"] for row in frame.collect()] == [10, 11, 12, 13, 14]


AGGREGATES = [
    "SELECT count(*) FROM log",
    "SELECT count(offset), min(offset), max(offset), min(timestamp), max(timestamp) FROM log",
    "SELECT topic, count(*) FROM log GROUP BY topic",
    "SELECT topic, partition, count(1), max(offset), min(timestamp) FROM log GROUP BY topic, partition",
    "SELECT partition, max(timestamp) FROM log WHERE topic IN ('GoldA', 'GoldBatchCQ') GROUP BY partition",
    "SELECT count(*), max(offset) FROM log WHERE topic = 'nowhere'",
    "SELECT topic, count(*) FROM log WHERE offset > 20 GROUP BY topic HAVING count(*) > 100",
]
NOT_PUSHED = [
    "SELECT count(key), count(tags) FROM log",
    "SELECT count(DISTINCT offset) FROM log",
    "SELECT topic, sum(length(value)) FROM log GROUP BY topic",
    "SELECT tags, count(*) FROM log GROUP BY tags",
    "SELECT count(*) FROM log WHERE tags = 'TagA'",
    "SELECT max(topic), first(topic), min(key) FROM log",
]


@pytest.mark.parametrize("query", AGGREGATES + NOT_PUSHED)
def test_aggregates(spark: Any, read: Read, query: str) -> None:
    answers = []
    for name in ("ringmq", "ringmq-jvm"):
        read(name).createOrReplaceTempView("log")
        answers.append(spark.sql(query))
    if "first" not in query:
        assert sorted(map(str, answers[0].collect())) == sorted(map(str, answers[1].collect()))
    else:
        assert len(answers[1].collect()) == 1
    assert ("BatchScan" in plan_of(answers[1]).partition("== Physical Plan ==")[2]) == (query in NOT_PUSHED)


@pytest.mark.parametrize("limit", [1, 7, 500, 100_000])
def test_limit(read: Read, limit: int) -> None:
    everything = {(row["topic"], row["partition"], row["offset"]): row for row in rows(read("ringmq"))}
    found = rows(read("ringmq-jvm").limit(limit))
    assert len(found) == min(limit, len(everything))
    assert all(everything[(row["topic"], row["partition"], row["offset"])] == row for row in found)


def test_offsets_of_queue_columns_need_no_record(read: Read, manifest: list[dict[str, Any]]) -> None:
    chosen = {"columns": "topic,partition,offset,timestampType,broker"}
    assert rows(read("ringmq-jvm", **chosen)) == rows(read("ringmq", **chosen))


def test_starting_and_ending_offsets(read: Read) -> None:
    by_queue = read("ringmq", subscribe="GoldA").groupBy("partition").count()
    counts = {row["partition"]: row["count"] for row in by_queue.collect()}
    starting = {"GoldA": {str(queue): 5 if queue else -2 for queue in counts}}
    ending = {"GoldA": {f"DEFAULT_BROKER:{queue}": count - 3 if queue else -1 for queue, count in counts.items()}}
    options = {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}
    expected = rows(read("ringmq", subscribe="GoldA", **options))
    assert len(expected) == sum(counts.values()) - 8 * (len(counts) - 1)
    assert rows(read("ringmq-jvm", subscribe="GoldA", **options)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stroe": "x"}, "stroe"),
        ({"bootstrap": "127.0.0.1:9876"}, "bootstrap"),
        ({"startingTimestamp": "5"}, "startingTimestamp"),
        ({"transport": "tcp"}, "transport"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss"),
        ({"columns": "offset,body"}, "'body'"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "exclude"),
        ({"subscribe": "nowhere"}, "nowhere"),
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"endingOffsets": '{"GoldA": {"0": 3}}'}, "endingOffsets"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"store": "/nowhere"}, "/nowhere/commitlog"),
    ],
)
def test_refusals_name_the_option(read: Read, options: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        read("ringmq-jvm", **options).count()


def test_sql_names_it(spark: Any, golden_store: Path, read: Read) -> None:
    spark.sql(f"CREATE TABLE jvm_log USING `ringmq-jvm` OPTIONS (store '{golden_store}', subscribe 'GoldA')")
    try:
        expected = rows(read("ringmq", subscribe="GoldA").select("topic", "partition", "offset"))
        assert rows(spark.sql("SELECT topic, partition, offset FROM jvm_log")) == expected
    finally:
        spark.sql("DROP TABLE jvm_log")


def test_a_schema_chooses_columns(spark: Any, golden_store: Path) -> None:
    reader = spark.read.format("ringmq-jvm").option("store", str(golden_store))
    assert reader.schema("offset bigint, topic string").load().columns == ["offset", "topic"]
    with pytest.raises(Exception, match="column offset is BIGINT, not INT"):
        reader.schema("offset int").load()
