"""The same rows by shared memory and over tcp: from a RingMQ broker on the golden store, and from a stock one."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ringmq.client import MessageQueue
from ringmq.client.connections.pull_connection import PullConnection
from ringmq.remoting.codes import RequestCode
from ringmq.spark_bridge.bootstrap_catalog import BootstrapCatalog
from ringmq.spark_bridge.combined_catalog import CombinedCatalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import parse_options
from ringmq.spark_bridge.plan import plan_batch
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.remote_catalog import RemoteCatalog
from ringmq.spark_bridge.schema import COLUMNS
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import Slice
from tests.conformance import servers
from tests.raw_client import RawClient
from tests.spark_bridge.golden_broker import start_on_golden

pytestmark = pytest.mark.timeout(400)

OF_THE_RECORD = tuple(name for name in COLUMNS if name != "broker")
SHM, TCP = ReadSettings(transport="shm"), ReadSettings(transport="tcp")
HIDDEN = """
import json, pickle, subprocess, sys
part, columns, store = pickle.loads(bytes.fromhex(sys.argv[1]))
subprocess.run(["mount", "-t", "tmpfs", "none", store], check=True)
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
try:
    list(read_slice(part, columns, ReadSettings(transport="shm")))
except Exception as error:
    refused = f"{type(error).__name__}: {error}"
offsets = [r["commit_log_offset"] for b in read_slice(part, columns, ReadSettings()) for r in b.to_pylist()]
print(json.dumps({"refused": refused, "offsets": offsets}))
"""
WITHOUT_CORE = """
import json, pickle, sys
sys.modules["ringmq.native._native"] = None
from ringmq import native
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
assert not native.available()
part, columns = pickle.loads(bytes.fromhex(sys.argv[1]))
rows = [row for batch in read_slice(part, columns, ReadSettings()) for row in batch.to_pylist()]
print(json.dumps(sorted(str(sorted(row.items())) for row in rows)))
"""


@pytest.fixture(scope="module")
def ringmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    server = start_on_golden("ringmq", tmp_path_factory.mktemp("transports"))
    yield server
    server.close()


Row = tuple[Any, ...]


def rows_of(part: Slice, how: ReadSettings, columns: tuple[str, ...] = OF_THE_RECORD) -> list[Row]:
    """Rows as comparable tuples, sorted by place."""
    rows = [
        tuple(json.dumps(value, default=str) if isinstance(value, list) else value for value in row.values())
        for batch in read_slice(part, columns, how)
        for row in batch.to_pylist()
    ]
    places = [columns.index(name) for name in ("topic", "partition", "offset")]
    return sorted(rows, key=lambda row: [row[place] for place in places])


def plan(**options: str) -> list[Slice]:
    checked = parse_options(options)
    return plan_batch(open_catalog(checked), checked)


def test_each_slice_by_either_transport(ringmq: servers.Server) -> None:
    parts = plan(bootstrap=ringmq.namesrv, minPartitions="5", includeSystemTopics="true")
    assert len(parts) >= 5
    assert all(part.log and part.broker.store and part.broker.address == ringmq.broker for part in parts)
    count = 0
    for part in parts:
        by_shm = rows_of(part, SHM, tuple(COLUMNS))
        assert rows_of(part, TCP, tuple(COLUMNS)) == by_shm
        count += len(by_shm)
    assert count > 1000


def test_plans_by_files_and_by_the_broker_have_the_same_rows(ringmq: servers.Server) -> None:
    by_files = plan(store=str(ringmq.store), minPartitions="3")
    by_broker = plan(bootstrap=ringmq.namesrv, transport="tcp", minPartitions="3")
    assert all(part.log is None for part in by_broker)

    def everything(parts: list[Slice], how: ReadSettings) -> list[Row]:
        return sorted((row for part in parts for row in rows_of(part, how)), key=str)

    assert everything(by_broker, TCP) == everything(by_files, SHM)
    assert everything(by_broker, SHM) == everything(by_files, SHM), "without a log range by the queues"


def test_offsets_and_times_by_the_broker(ringmq: servers.Server) -> None:
    files = open_catalog(parse_options({"store": str(ringmq.store)}))
    broker = open_catalog(parse_options({"bootstrap": ringmq.namesrv, "transport": "tcp"}))
    keys = files.queues()
    assert broker.queues() == [key for key in broker.queues() if broker.bounds(key) or key not in keys]
    for key in keys:
        first, end = files.bounds(key)
        assert broker.bounds(key) == (first, end)
    (place,) = broker.brokers()
    assert place == replace(files.brokers()[0], address=ringmq.broker)
    key = next(key for key in keys if key.topic == "GoldA")
    part = Slice(place, (next(s for p in plan(store=str(ringmq.store)) for s in p.spans if s.key == key),))
    times = [row[0].timestamp() * 1000 for row in rows_of(part, SHM, ("timestamp", "topic", "partition", "offset"))]
    for time_ms in (0, int(times[0]), int(times[len(times) // 2]), int(times[-1]), int(times[-1]) + 1):
        assert broker.offset_at(key, time_ms) == files.offset_at(key, time_ms), time_ms


def test_which_catalog_is_opened(ringmq: servers.Server) -> None:
    store, bootstrap = str(ringmq.store), ringmq.namesrv
    alone, together = {"bootstrap": bootstrap}, {"bootstrap": bootstrap, "store": store}
    for options, kind in ((alone, BootstrapCatalog), (together, CombinedCatalog)):
        catalog = open_catalog(parse_options(options))
        assert isinstance(catalog, kind)
        (place,) = catalog.brokers()
        assert (place.name, place.address) == (servers.BROKER_NAME, ringmq.broker)
        assert place.store is not None
        assert place.store.root == store
    assert isinstance(open_catalog(parse_options({"bootstrap": bootstrap, "transport": "tcp"})), RemoteCatalog)


def test_topics_that_a_broker_has_for_itself_are_asked_for(ringmq: servers.Server) -> None:
    def topics(**options: str) -> set[str]:
        catalog = open_catalog(parse_options({"bootstrap": ringmq.namesrv, "transport": "tcp", **options}))
        return {key.topic for key in catalog.queues()}

    assert {"GoldA"} <= topics() < topics(includeSystemTopics="true")
    assert not {"TBW102", "DefaultCluster", servers.BROKER_NAME} & topics()
    assert topics(subscribePattern="GoldB.*") == {topic for topic in topics() if topic.startswith("GoldB")}
    assert topics(subscribe="GoldA,NoSuchTopic") == {"GoldA"}


def test_a_task_on_another_host_pulls(ringmq: servers.Server) -> None:
    """`boot_id` is another host's: the rows come over tcp, and `transport=shm` says what is wrong."""
    part = plan(bootstrap=ringmq.namesrv, subscribe="GoldA")[0]
    assert part.broker.store is not None
    elsewhere = replace(part, broker=replace(part.broker, store=replace(part.broker.store, boot_id="another")))
    assert rows_of(elsewhere, ReadSettings()) == rows_of(part, SHM)
    with pytest.raises(ReadError, match="this task's host does not have the store"):
        rows_of(elsewhere, SHM)
    alone = replace(elsewhere, broker=replace(elsewhere.broker, address=None))
    with pytest.raises(ReadError, match="bootstrap"):
        rows_of(alone, ReadSettings())


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root hides a folder by a mount")
def test_a_task_that_cannot_see_the_store_pulls(ringmq: servers.Server) -> None:
    """The same boot, but a mount namespace where the store's folder is empty, as in a container."""
    part = plan(bootstrap=ringmq.namesrv, subscribe="GoldA")[0]
    columns = ("topic", "partition", "offset", "commit_log_offset")
    task = pickle.dumps((part, columns, str(ringmq.store))).hex()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", HIDDEN, task], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sorted(told["offsets"]) == sorted(row[3] for row in rows_of(part, SHM, columns))
    assert told["refused"].startswith("ReadError: ")
    assert str(ringmq.store) in told["refused"]


def test_bulk_pulls_are_bounded_by_bytes_alone(ringmq: servers.Server) -> None:
    """Where a consumer gets 32 messages (maxTransferCountOnMessageInMemory)."""
    catalog = open_catalog(parse_options({"bootstrap": ringmq.namesrv, "transport": "tcp", "subscribe": "GoldA"}))
    key = next(key for key in catalog.queues() if catalog.bounds(key)[1] - catalog.bounds(key)[0] > 32)
    first, end = catalog.bounds(key)
    with PullConnection(ringmq.broker, "bulk") as connection:
        connection.ask(MessageQueue(*key), first, 1000)
        (answer,) = connection.answers()
        assert answer.next_offset == end
    with RawClient(ringmq.broker) as consumer:
        pulled = consumer.pull(key.topic, key.queue_id, first, maxMsgNums=1000)
        assert pulled.ext_fields["nextBeginOffset"] == str(first + 32)


def test_a_bulk_answer_has_the_bytes_of_four_others(ringmq: servers.Server) -> None:
    catalog = open_catalog(parse_options({"bootstrap": ringmq.namesrv, "transport": "tcp", "subscribe": "GoldA"}))
    key = max(catalog.queues(), key=lambda key: catalog.bounds(key)[1] - catalog.bounds(key)[0])
    first, _ = catalog.bounds(key)
    bytes_max = 5000
    with RawClient(ringmq.broker) as client, PullConnection(ringmq.broker, "bulk") as connection:
        for number in (bytes_max, 256 << 10):
            text = b"maxTransferBytesOnMessageInMemory=%d" % number
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text).code == 0
            connection.ask(MessageQueue(*key), first, 1000)
            (answer,) = connection.answers()
            if number == bytes_max:
                assert bytes_max < len(answer.body) <= 4 * bytes_max


def test_a_host_without_the_c_core_pulls(ringmq: servers.Server) -> None:
    """The base install: every column by plain Python, and the same rows."""
    part = plan(bootstrap=ringmq.namesrv, subscribePattern="Gold.*", minPartitions="3")[1]
    task = pickle.dumps((part, OF_THE_RECORD)).hex()
    command = [sys.executable, "-c", WITHOUT_CORE, task]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    expected = [str(sorted(row.items())) for batch in read_slice(part, OF_THE_RECORD, TCP) for row in batch.to_pylist()]
    assert json.loads(done.stdout) == sorted(expected)


def test_a_name_server_that_nobody_answers_for() -> None:
    with pytest.raises(ReadError, match=r"bootstrap 127.0.0.1:1: no answer about .*: no connection"):
        plan(bootstrap="127.0.0.1:1")
