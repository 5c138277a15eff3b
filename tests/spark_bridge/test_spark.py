"""The data source in a real Spark session: found by its name, in SQL, pruned, filtered; mistakes are named."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge.schema import COLUMNS, KAFKA_COLUMNS
from tests.spark_bridge.made_store import MadeStore

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Entry = dict[str, Any]
Load = Callable[..., Any]


@pytest.fixture
def load(spark: Any, golden_store: Path) -> Load:
    """`load(name=value, ...)`: a frame of the golden store."""

    def make(**options: object) -> Any:
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("ringmq").option("store", str(golden_store)).options(**texts).load()

    return make


@contextmanager
def pushdown(spark: Any, enabled: bool) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, str(enabled).lower())
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, before)


def places(frame: Any) -> list[tuple[str, int, int]]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def expected_counts(manifest: list[Entry]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in manifest:
        if is_user_topic(entry["topic"]):
            counts[entry["topic"]] += entry["batchSize"] if entry["sysFlag"] & 0x80 else 1
    return counts


def test_counts_per_topic(load: Load, manifest: list[Entry]) -> None:
    frame = load(minPartitions=4)
    assert frame.columns == list(KAFKA_COLUMNS)
    assert {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()} == expected_counts(manifest)
    assert frame.rdd.getNumPartitions() >= 4


def test_a_chosen_schema_and_values(spark: Any, golden_store: Path, manifest: list[Entry]) -> None:
    reader = spark.read.format("ringmq").option("store", str(golden_store)).option("subscribe", "GoldA")
    frame = reader.schema("offset bigint, value binary, timestamp timestamp, tags string").load()
    total = frame.selectExpr("sum(length(value)) AS bytes", "count(*) AS n", "max(offset) AS last").collect()[0]
    entries = [entry for entry in manifest if entry["topic"] == "GoldA"]
    assert (total["bytes"], total["n"]) == (sum(e["bodyLength"] for e in entries), len(entries))
    assert total["last"] == max(e["queueOffset"] for e in entries)


def test_every_column_reaches_spark(load: Load, manifest: list[Entry]) -> None:
    frame = load(columns=",".join(COLUMNS), subscribe="GoldC")
    assert frame.columns == list(COLUMNS)
    rows = {row["offset"]: row for row in frame.collect()}
    entries = [entry for entry in manifest if entry["topic"] == "GoldC"]
    assert len(rows) == len(entries)
    for entry in entries:
        row = rows[entry["queueOffset"]]
        assert row["properties"] == entry["properties"]
        assert row["msg_id"] == entry["properties"].get("UNIQ_KEY", entry["offsetMsgId"])
        assert row["commit_log_offset"] == entry["commitLogOffset"]
        assert len(row["value"]) == entry["bodyLength"]
        assert round(row["timestamp"].timestamp() * 1000) == entry["storeTimestamp"]


@pytest.mark.parametrize(
    "place", ["OPTIONS (store '{}', subscribe 'GoldB')", "OPTIONS (subscribe 'GoldB') LOCATION '{}'"]
)
def test_tables_of_the_catalog(spark: Any, golden_store: Path, manifest: list[Entry], place: str) -> None:
    spark.sql(f"CREATE TABLE gold_b USING ringmq {place.format(golden_store)} TBLPROPERTIES (team 'orders')")
    try:
        (found,) = spark.sql("SELECT count(*) AS n, count(DISTINCT partition) AS queues FROM gold_b").collect()
        entries = [entry for entry in manifest if entry["topic"] == "GoldB"]
        assert (found["n"], found["queues"]) == (len(entries), 4)
        (some,) = spark.sql("SELECT count(*) FROM gold_b WHERE partition = 1 AND offset < 5").collect()
        assert some[0] == 5
    finally:
        spark.sql("DROP TABLE gold_b")


def test_views(spark: Any, golden_store: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW gold USING ringmq OPTIONS (store '{golden_store}', includeHeaders 'true')")
    try:
        assert spark.sql("SELECT count(*) FROM gold WHERE topic = 'GoldC'").collect()[0][0] > 0
        assert spark.table("gold").columns[-1] == "headers"
    finally:
        spark.catalog.dropTempView("gold")


FILTERS = [
    "topic = 'GoldA'",
    "topic IN ('GoldB', 'GoldTx') AND partition = 1",
    "topic > 'GoldB' AND offset < 7",
    "offset IN (3, 90, 4000)",
    "offset >= 20 AND offset <= 22 AND partition > 0",
    "topic = 'GoldA' AND length(value) > 300",
    "topic = 'GoldNone'",
    "topic = 'GoldA' OR offset = 5",
    "NOT (topic = 'GoldA')",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_give_the_same_rows_pushed_or_not(spark: Any, load: Load, condition: str) -> None:
    with pushdown(spark, False):
        expected = places(load().where(condition))
    with pushdown(spark, True):
        assert places(load().where(condition)) == expected
    assert bool(expected) == (condition != "topic = 'GoldNone'")


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_filters_by_time_give_the_same_rows_pushed_or_not(
    spark: Any, load: Load, manifest: list[Entry], op: str
) -> None:
    middle_ms = manifest[len(manifest) // 2]["storeTimestamp"]
    condition = f"timestamp {op} timestamp_millis({middle_ms})"
    with pushdown(spark, False):
        expected = places(load().where(condition))
    with pushdown(spark, True):
        assert places(load().where(condition)) == expected
    assert expected


def test_a_pushed_filter_narrows_the_plan(spark: Any, load: Load) -> None:
    with pushdown(spark, True):
        whole, one = load(minPartitions=8), load(minPartitions=8).where("topic = 'GoldC' AND offset = 3")
        assert whole.rdd.getNumPartitions() >= 8
        assert one.rdd.getNumPartitions() == 1
        assert "Filter (" not in one._jdf.queryExecution().executedPlan().toString()
        nothing = load(minPartitions=8).where("offset > 1000000")
        assert nothing.count() == 0


def test_a_frame_that_is_loaded_anew_sees_what_is_new(spark: Any, tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for count in (1, 2):
        made.append(topic="T")
        assert spark.read.format("ringmq").load(str(made.root)).count() == count


def test_an_empty_store_has_no_rows(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert spark.read.format("ringmq").load(str(tmp_path)).collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stroe": "x"}, "unknown option 'stroe'"),
        ({"startingOffsets": "latest"}, "startingOffsets='latest'.*accepted: earliest"),
        ({"subscribe": "Missing"}, "subscribe: Missing not found"),
        ({"store": "/nowhere"}, "/nowhere has no folder commitlog on this host"),
        ({"columns": "offset,body"}, "column 'body' is not one of"),
    ],
)
def test_mistakes_are_named(spark: Any, golden_store: Path, options: dict[str, str], message: str) -> None:
    given = {"store": str(golden_store)} | options
    with pytest.raises(Exception, match=message):
        spark.read.format("ringmq").options(**given).load().count()


def test_read_takes_python_values(spark: Any, golden_store: Path, manifest: list[Entry]) -> None:
    from ringmq.spark_bridge import read

    frame = read(spark, store=golden_store, includeHeaders=True, minPartitions=3, subscribe=None)
    assert frame.columns == [*KAFKA_COLUMNS, "headers"]
    assert frame.count() == sum(expected_counts(manifest).values())
