"""What Spark's tasks read from the files of a store is what the stock Java consumer gets from a stock broker on it."""

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from tests.archives import extract_all
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient
from tests.spark_bridge.golden_broker import GOLDEN, golden_settings

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "born_timestamp", "tags", "properties")
INNER_BATCH_TOPIC = "GoldBatchCQ"
Position = tuple[str, int, int]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden store as it was recorded."""
    target = tmp_path_factory.mktemp("spark-rows")
    with tarfile.open(GOLDEN / "store-basic.tar.gz") as tar:
        extract_all(tar, target)
    return target / "store-basic"


def rows_of(store: Path, **options: str) -> dict[Position, dict[str, Any]]:
    parsed = parse_options({"store": str(store)} | options)
    parts = plan_batch(open_catalog(parsed), parsed)
    batches = [batch for part in parts for batch in read_slice(part, COLUMNS, ReadSettings(verify_crc=True))]
    rows = [row for batch in batches for row in batch.to_pylist()]
    by_position = {(row["topic"], row["partition"], row["offset"]): row for row in rows}
    assert len(by_position) == len(rows), "no row comes twice"
    return by_position


def test_the_stock_consumer_gets_the_same_messages(
    golden: Path, stock_client: StockClient, started: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = rows_of(golden, minPartitions="5")
    copy = Path(shutil.copytree(golden, tmp_path_factory.mktemp("spark-rows-stock") / "store"))
    server = started("stock-broker", "spark-rows", settings=golden_settings(), store=copy)
    topics = sorted({topic for topic, _, _ in rows})
    seen = stock_client.call("readTopics", server.namesrv, topics=topics)
    messages = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in seen}
    ends: dict[tuple[str, int], int] = {}
    for topic, queue_id, offset in rows:
        ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
    # the running broker delivers what was waiting for its time: only that lies behind the golden ends
    assert {position for position in messages if position[2] < ends.get(position[:2], 0)} == rows.keys()
    for position, row in rows.items():
        check_row(row, messages[position])


def check_row(row: dict[str, Any], message: dict[str, Any]) -> None:
    assert hashlib.sha256(row["value"]).hexdigest() == message["bodySha256"]
    assert round(row["timestamp"].timestamp() * 1000) == message["storeTimestamp"]
    assert round(row["born_timestamp"].timestamp() * 1000) == message["bornTimestamp"]
    properties = dict(row["properties"])
    if row["topic"] != INNER_BATCH_TOPIC:  # the client adds what its batch had to the messages of one
        assert properties == message["properties"]
    assert row["tags"] == message["properties"].get("TAGS")
    assert row["key"] == (message["properties"]["KEYS"].encode() if "KEYS" in message["properties"] else None)
