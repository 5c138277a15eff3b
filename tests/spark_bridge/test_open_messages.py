"""The open messages of a group as a table: of a live broker, a killed one, a stopped one, and of 100,000 messages."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringmq.loadtest.load.running import RunningBroker, remove_shared_memory
from ringmq.native import ffi, lib
from ringmq.pop.memory import remove_lasting
from ringmq.pop.names import Names
from ringmq.spark_bridge import scan
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.option_table import OptionError
from ringmq.spark_bridge.schema import OPEN_COLUMNS, arrow_schema, spark_schema
from tests.broker.test_processes import SMALL
from tests.pop.memory_kit import open_memory
from tests.pop.pop_client import PopClient, Taken
from tests.pop.test_pop_broker import found
from tests.pop.test_snapshots import Taker
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
HOUR_MS = 3_600_000
Row = dict[str, Any]


def send(address: str, topic: str, count: int, queues: int = 1) -> None:
    with RawClient(address) as client:
        for number in range(count):
            assert client.send(topic, b"%d" % number, number % queues).code == 0


def taken(client: PopClient, count: int) -> list[Taken]:
    """So many messages, one by one."""
    given = list[Taken]()
    wait_until(lambda: given.extend(client.pop(1, HOUR_MS)) or len(given) == count, "pops find the messages")
    return given


def rows_of(store: Path, group: str, **more: Any) -> list[Row]:
    rows: list[Row] = scan(store, openMessages=group, **more).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def wait_for(store: Path, group: str, places: set[tuple[str, int, int]]) -> list[Row]:
    """The rows, once a snapshot has these messages and no others."""
    rows = list[Row]()

    def is_there() -> bool:
        with contextlib.suppress(ReadError):  # the group's first snapshot is on its way
            rows[:] = rows_of(store, group)
            return {(row["topic"], row["partition"], row["offset"]) for row in rows} == places
        return False

    wait_until(is_there, f"a snapshot has {len(places)} messages", state=lambda: rows[:5])
    assert len(rows) == len(places)
    return rows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    store = tmp_path_factory.mktemp("open") / "store"
    with RunningBroker(store, SMALL) as running:
        yield running
        assert running.stop() == 0
    assert len(rows_of(store, "two")) == 2, "a stopped broker has its last snapshot"


def test_rows_tell_place_times_and_client(broker: RunningBroker) -> None:
    make_topic(broker.address, "Orders", 2)
    send(broker.address, "Orders", 6, 2)
    with contextlib.closing(PopClient(broker.address, "billing", "Orders")) as client:
        before_ms = time.time_ns() // 1_000_000
        held = taken(client, 6)
        assert client.ack(held[0]).code == 0
        assert client.change(held[1], 2 * HOUR_MS).code == 0
        rows = wait_for(broker.store, "billing", {("Orders", one.queue_id, one.offset) for one in held[1:]})
    for row in rows:
        popped_ms, until_ms = (round(row[name].timestamp() * 1000) for name in ("popped_at", "invisible_until"))
        is_changed = (row["partition"], row["offset"]) == (held[1].queue_id, held[1].offset)
        assert until_ms - popped_ms == (2 if is_changed else 1) * HOUR_MS
        assert before_ms <= popped_ms and 0 <= row["age_ms"] <= time.time_ns() // 1_000_000 - before_ms
        assert (row["group"], row["attempts"]) == ("billing", 1)
    (client_of_all,) = {row["client"] for row in rows}
    assert len(client_of_all) == 8 and int(client_of_all, 16)


def test_a_message_that_came_again_tells_its_attempts(broker: RunningBroker) -> None:
    make_topic(broker.address, "Slow", 1)
    send(broker.address, "Slow", 1)
    with contextlib.closing(PopClient(broker.address, "late", "Slow")) as client:
        assert found(client, invisible_ms=100).message.reconsume_times == 0
        assert found(client, invisible_ms=100).message.reconsume_times == 1
        third = found(client, invisible_ms=HOUR_MS)
    (row,) = wait_for(broker.store, "late", {("%RETRY%late_Slow", 0, third.offset)})
    assert row["attempts"] == third.message.reconsume_times + 1 == 3


def test_a_batch_of_an_orderly_group(broker: RunningBroker) -> None:
    make_topic(broker.address, "Steps", 1)
    send(broker.address, "Steps", 5)
    with contextlib.closing(PopClient(broker.address, "strict", "Steps")) as client:
        batch = list[Taken]()
        order = {"order": "true", "attemptId": "a"}
        wait_until(lambda: batch.extend(client.pop(3, 0, **order)) or batch, "a batch that is over at once")
        batch = client.pop(3, HOUR_MS, **order | {"attemptId": "b"})
        assert client.ack(batch[1]).code == 0
        rows = wait_for(broker.store, "strict", {("Steps", 0, 0), ("Steps", 0, 2)})
    times = [round(row["invisible_until"].timestamp() * 1000 - row["popped_at"].timestamp() * 1000) for row in rows]
    assert times == [HOUR_MS, HOUR_MS]
    assert [row["attempts"] for row in rows] == [2, 2]
    (client_of_all,) = {row["client"] for row in rows}
    assert client_of_all and int(client_of_all, 16)


def test_groups_columns_and_the_form_of_a_scan(broker: RunningBroker) -> None:
    make_topic(broker.address, "Both", 1)
    send(broker.address, "Both", 2)
    for group in ("one", "two"):
        with contextlib.closing(PopClient(broker.address, group, "Both")) as client:
            taken(client, 2)
        wait_for(broker.store, group, {("Both", 0, 0), ("Both", 0, 1)})
    whole = scan(broker.store, openMessages="one,two")
    assert tuple(whole.schema.names) == tuple(OPEN_COLUMNS)
    assert whole.to_arrow().schema.equals(whole.schema)
    assert whole.count() == 4 and whole.to_arrow().equals(whole.to_arrow())
    assert sorted(whole.to_arrow().column("group").to_pylist()) == ["one", "one", "two", "two"]
    assert scan(broker.store, openMessages="two", columns=["offset"]).to_arrow().to_pydict() == {"offset": [0, 1]}


def test_a_scan_stays_as_it_was(broker: RunningBroker) -> None:
    make_topic(broker.address, "Frozen", 1)
    send(broker.address, "Frozen", 1)
    with contextlib.closing(PopClient(broker.address, "cold", "Frozen")) as client:
        (one,) = taken(client, 1)
        wait_for(broker.store, "cold", {("Frozen", 0, 0)})
        before = scan(broker.store, openMessages="cold")
        assert client.ack(one).code == 0
        wait_for(broker.store, "cold", set())
    assert before.count() == before.to_arrow().num_rows == 1


def test_a_group_that_has_popped_nothing_is_named_with_those_that_have(broker: RunningBroker) -> None:
    make_topic(broker.address, "Known", 1)
    send(broker.address, "Known", 1)
    with contextlib.closing(PopClient(broker.address, "known", "Known")) as client:
        taken(client, 1)
    wait_for(broker.store, "known", {("Known", 0, 0)})
    with pytest.raises(ReadError, match=r"openMessages: nobody has popped no message there; groups that have: .*known"):
        scan(broker.store, openMessages="nobody")


def test_a_store_without_pop_and_a_folder_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="has no folder commitlog"):
        scan(tmp_path, openMessages="billing")
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(ReadError, match="POP was never used there"):
        scan(tmp_path, openMessages="billing")


def test_after_kill_9_and_a_power_cut(tmp_path: Path) -> None:
    store, places = tmp_path / "store", {("Orders", 0, offset) for offset in range(30)}
    with RunningBroker(store, SMALL) as broker:
        make_topic(broker.address, "Orders", 1)
        send(broker.address, "Orders", 40)
        client = PopClient(broker.address, "billing", "Orders")
        held = taken(client, 40)
        for one in held[30:]:
            assert client.ack(one).code == 0
        live = wait_for(store, "billing", places)
        broker.kill_all()
    timeless = [{name: value for name, value in row.items() if name != "age_ms"} for row in live]

    def now() -> list[Row]:
        return [{name: value for name, value in row.items() if name != "age_ms"} for row in rows_of(store, "billing")]

    assert now() == timeless
    remove_shared_memory(store)
    assert now() == timeless


# ---- many ----

MANY = 100_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with 100,000 messages that were popped one by one, each by another client, and those of another group."""
    root = tmp_path_factory.mktemp("many")
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(65_536))
    memory = open_memory(root, entries=1 << 17)
    names, taker = Names(memory.folder), Taker(memory)
    windows = lib.rmq_pop_windows_open(memory.pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
    place, give = ffi.new("uint32_t *"), ffi.new("struct rmq_pop_give *", {"invisible_ms": 60_000})
    offsets = ffi.new("int64_t[]", 64)
    for group, count, step in (("billing", MANY, 1), ("audit", 6400, 64)):
        number = names.add(group, "Orders", 3, 0)
        assert lib.rmq_pop_window_make(windows, number, 3, 0, 0, place) == 0
        for first in range(0, count, step):
            give.pop_time_ms, give.start_offset, give.next_offset, give.client = first + 1, first, first + step, first
            offsets[0:step] = list(range(first, first + step))
            assert lib.rmq_pop_window_give(windows, place[0], give, offsets, step) == 0
    taker.write()
    lib.rmq_pop_windows_close(windows)
    taker.snapshots.close()
    names.close()
    memory.close(clean=False)
    yield root
    remove_lasting(root)


def test_100_000_messages(many: Path) -> None:
    table = scan(many, openMessages="billing").to_arrow()
    assert table.num_rows == MANY
    numbers = np.arange(MANY)
    assert (np.sort(table.column("offset").to_numpy()) == numbers).all()
    popped_us = table.column("popped_at").cast("int64").to_numpy()
    assert (popped_us == 1000 * (table.column("offset").to_numpy() + 1)).all()
    assert (table.column("invisible_until").cast("int64").to_numpy() - popped_us == 60_000_000).all()
    clients = [None if not number else f"{number:08x}" for number in table.column("offset").to_pylist()]
    assert table.column("client").to_pylist() == clients
    assert set(table.column("attempts").to_pylist()) == {1} and set(table.column("partition").to_pylist()) == {3}


def test_entries_of_64_messages(many: Path) -> None:
    table = scan(many, openMessages="audit").to_arrow()
    offsets = table.column("offset").to_numpy()
    assert (np.sort(offsets) == np.arange(6400)).all()
    popped_ms = table.column("popped_at").cast("int64").to_numpy() // 1000
    assert (popped_ms == offsets // 64 * 64 + 1).all()


# ---- Spark ----


@pytest.mark.spark
def test_spark_has_the_same_table(spark: Any, many: Path) -> None:
    frame = spark.read.format("ringmq").option("store", str(many)).option("openMessages", "billing,audit").load()
    assert frame.columns == list(OPEN_COLUMNS)
    counts = {row["group"]: (row["n"], row["last"]) for row in frame.groupBy("group").agg(
        {"*": "count", "offset": "max"}).withColumnsRenamed({"count(1)": "n", "max(offset)": "last"}).collect()
    }  # fmt: skip
    assert counts == {"billing": (MANY, MANY - 1), "audit": (6400, 6399)}
    late = frame.where("group = 'billing' AND offset >= 99990").select("attempts", "topic", "client").collect()
    assert sorted(late)[0] == (1, "Orders", f"{99_990:08x}") and len(late) == 10


@pytest.mark.spark
def test_spark_tables_of_sql_and_mistakes(spark: Any, many: Path) -> None:
    from ringmq.spark_bridge import read

    spark.sql(f"CREATE TABLE open_now USING ringmq OPTIONS (store '{many}', openMessages 'audit')")
    try:
        assert spark.sql("SELECT count(*), min(invisible_until) FROM open_now").collect()[0][0] == 6400
    finally:
        spark.sql("DROP TABLE open_now")
    assert read(spark, store=many, openMessages="audit", columns="offset").columns == ["offset"]
    with pytest.raises(Exception, match="nobody has popped no message there; groups that have: audit, billing"):
        spark.read.format("ringmq").options(store=str(many), openMessages="nobody").load().count()
    with pytest.raises(Exception, match="openMessages is for batch reads"):
        stream = spark.readStream.format("ringmq").options(store=str(many), openMessages="audit").load()
        stream.writeStream.format("noop").start().processAllAvailable()


@pytest.mark.spark
def test_the_source_plans_one_task_and_refuses_it_elsewhere(many: Path) -> None:
    """Without a session: what Spark's workers call, with the pickling between."""
    import pickle

    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark_ringmq import DefaultSource

    source = DefaultSource({"store": str(many), "openMessages": "audit"})
    assert source.schema() == spark_schema(tuple(OPEN_COLUMNS), OPEN_COLUMNS)
    chosen = from_arrow_schema(arrow_schema(("attempts", "offset"), OPEN_COLUMNS))
    reader = pickle.loads(pickle.dumps(source.reader(chosen)))
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))
    batches = list(reader.read(partition))
    assert [batch.schema.names for batch in batches] == [["attempts", "offset"]]
    assert sum(batch.num_rows for batch in batches) == 6400
    partition.place = replace(partition.place, boot_id="another boot")
    with pytest.raises(ReadError, match="run the tasks on the broker's host"):
        reader.read(partition)
    with pytest.raises(OptionError, match="openMessages is for batch reads"):
        source.streamReader(chosen)
