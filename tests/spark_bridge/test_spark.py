"""A real Spark session over the golden store: the format is found by its name, counts and columns agree."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.topics import is_user_topic

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark_ringmq.session import local_session

    session = local_session("ringmq tests", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def test_counts_per_topic(spark: Any, golden_store: Path, manifest: list[dict[str, Any]]) -> None:
    frame = spark.read.format("ringmq").option("store", str(golden_store)).option("minPartitions", "4").load()
    assert frame.columns[:5] == ["key", "value", "topic", "partition", "offset"]
    found = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    expected: Counter[str] = Counter()
    for entry in manifest:
        if is_user_topic(entry["topic"]):
            expected[entry["topic"]] += entry["batchSize"] if entry["sysFlag"] & 0x80 else 1
    assert found == expected


def test_a_chosen_schema_and_values(spark: Any, golden_store: Path, manifest: list[dict[str, Any]]) -> None:
    frame = (
        spark.read.format("ringmq")
        .option("store", str(golden_store))
        .option("subscribe", "GoldA")
        .schema("offset bigint, value binary, timestamp timestamp, tags string")
        .load()
    )
    total = frame.selectExpr("sum(length(value)) AS bytes", "count(*) AS n", "max(offset) AS last").collect()[0]
    entries = [entry for entry in manifest if entry["topic"] == "GoldA"]
    assert (total["bytes"], total["n"]) == (sum(e["bodyLength"] for e in entries), len(entries))
    assert total["last"] == max(e["queueOffset"] for e in entries)


def test_a_wrong_option_is_named(spark: Any, golden_store: Path) -> None:
    with pytest.raises(Exception, match="stroe"):
        spark.read.format("ringmq").option("stroe", "x").option("store", str(golden_store)).load().count()
