"""Spark's source and sink at a stock broker on a copy of the golden store."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.sink.options import WriteOptions
from ringmq.spark_bridge.sink.plan import plan_stream_write
from ringmq.spark_bridge.sink.task import write_directly
from ringmq.spark_bridge.slices import BrokerLocation
from tests.conformance import servers
from tests.spark_bridge.golden_broker import start_on_golden
from tests.spark_bridge.test_transports import OF_THE_RECORD, SHM, plan, rows_of
from tests.spark_bridge.test_write_task import VALUE, rows, settled
from tests.staging import make_topic

pytestmark = [
    pytest.mark.stock,
    pytest.mark.skipif(shutil.which("java") is None or shutil.which("mvn") is None, reason="needs Java and Maven"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    server = start_on_golden("stock", tmp_path_factory.mktemp("stock"))
    yield server
    server.close()


def test_its_rows_are_those_that_shared_memory_finds(stock: servers.Server, golden_store: Path) -> None:
    topics = {"subscribePattern": "Gold.*"}
    by_files = plan(store=str(golden_store), **topics)
    by_broker = plan(bootstrap=stock.namesrv, minPartitions="4", **topics)
    assert {part.broker for part in by_broker} == {BrokerLocation(servers.BROKER_NAME, stock.broker)}
    assert len(by_broker) >= 4
    expected = {str(row) for part in by_files for row in rows_of(part, SHM)}
    found = [row for part in by_broker for row in rows_of(part, ReadSettings())]
    assert len({str(row) for row in found}) == len(found)
    assert expected <= {str(row) for row in found}
    more = {row[OF_THE_RECORD.index("topic")] for row in found if str(row) not in expected}
    due = {"GoldDelay", "GoldTimer"}  # what was due since the store was recorded is delivered now, or a moment later
    assert more <= due
    files = open_catalog(parse_options({"store": str(golden_store), **topics}))
    broker = open_catalog(parse_options({"bootstrap": stock.namesrv, **topics}))
    for key in files.queues():
        other = key._replace(broker=servers.BROKER_NAME)
        if key.topic in due:
            assert broker.bounds(other) >= files.bounds(key)
        else:
            assert broker.bounds(other) == files.bounds(key), key
        assert broker.offset_at(other, 0) == files.offset_at(key, 0)
        if key.topic != "GoldBatchCQ":  # stock names the last batch of such a queue for every later time
            assert broker.offset_at(other, 1 << 45) is None


def test_it_takes_rows_at_least_once_and_delays(stock: servers.Server) -> None:
    make_topic(stock.broker, "Stock", 2)
    options = WriteOptions(stock.namesrv, "Stock", chunk_bytes=4096)
    written = plan_stream_write(options, [*VALUE, ("delayLevel", "int")])
    assert written.staging is None
    levels = pa.array([None] * 100 + [1], pa.int32())
    values = pa.array([*rows("s", 100), b"delayed"])
    assert write_directly(written, iter([pa.record_batch({"value": values, "delayLevel": levels})])).rows == 101
    began = time.monotonic()
    found = settled(stock.broker, "Stock", 101)
    assert sorted(found) == sorted([*rows("s", 100), b"delayed"])
    assert time.monotonic() - began > 0.3, "level 1 is a second"
