"""The JVM source on stores with damage, gaps and running brokers."""

import asyncio
import os
import shutil
import signal
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import RetryPolicy, SendError, SendStatus
from ringmq.ipc.segment import create_segment, plane_name, remove_segments
from ringmq.ipc.watermark import MAGIC
from ringmq.spark_bridge.schema import COLUMNS
from ringmq.store.store_lock import StoreLock
from tests.conformance import servers
from tests.ha.raw_slave import RawSlave, ha_port
from tests.spark_bridge.jvm_kit import made, plan_of, read, rows, spark
from tests.spark_bridge.made_store import (
    COMPRESSED,
    INNER,
    LZ4,
    UNWRAP,
    ZLIB,
    ZSTD,
    MadeStore,
    held_by_stock,
    inner_batch_bytes,
    other_locks,
)
from tests.spark_bridge.test_live_bound import SETTINGS, send, while_unanswered
from tests.spark_bridge.test_live_bound import worker as worker_of
from tests.waiting import wait_until

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
__all__ = ["made", "read", "spark"]


def frame_of(spark: Any, store: MadeStore, name: str, **options: str) -> Any:
    chosen = {"columns": ",".join(COLUMNS), "store": str(store.root)} | options
    return spark.read.format(name).options(**chosen).load()


def test_made_records(spark: Any, made: MadeStore) -> None:
    frames = [frame_of(spark, made, name).where("offset < 100") for name in ("ringmq", "ringmq-jvm")]
    expected = rows(frames[0])
    assert len(expected) == 600
    assert rows(frames[1]) == expected


@pytest.mark.parametrize("name", ["ringmq", "ringmq-jvm"])
def test_headers_are_added_to_chosen_columns(spark: Any, made: MadeStore, name: str) -> None:
    assert frame_of(spark, made, name, columns="value", includeHeaders="true").columns == ["value", "headers"]


def test_a_body_that_cannot_be_decompressed_is_told(spark: Any, made: MadeStore) -> None:
    with pytest.raises(Exception, match=f"commit log offset {made.places[-1][0]}: the body cannot be decompressed"):
        frame_of(spark, made, "ringmq-jvm").collect()
    assert len(frame_of(spark, made, "ringmq-jvm").select("offset", "sys_flag").collect()) == 601, "it is not asked for"
    assert len(frame_of(spark, made, "ringmq-jvm", failOnDataLoss="false").collect()) == 600


@pytest.mark.parametrize("by_queues", [False, True])
def test_what_cannot_be_unpacked_is_passed_by_on_demand(spark: Any, tmp_path: Path, by_queues: bool) -> None:
    """As the Python source does it: a body of each compression, and the whole of an inner batch."""
    store = MadeStore(tmp_path / "store", batch_topics=frozenset({"Batch"}))
    inner = inner_batch_bytes([(b"one", b""), (b"two", b"")])
    store.append(body=b"first")
    store.append(topic="Batch", body=inner, sys_flag=INNER | UNWRAP, messages=2)
    for kind, body in (
        (ZLIB, b"no zlib"),
        (LZ4, b"\x04\x22\x4d\x18\xff\xff\xff"),
        (ZSTD, b"\x28\xb5\x2f\xfdno"),
        (0x700, b""),
    ):
        store.append(body=body, sys_flag=COMPRESSED | kind)
    store.append(topic="Batch", body=inner[:-2] + b"\x00", sys_flag=INNER | UNWRAP, messages=2)
    store.append(topic="Batch", body=b"no zlib", sys_flag=INNER | UNWRAP | COMPRESSED, messages=2)
    store.append(body=zlib.compress(b"last"), sys_flag=COMPRESSED | ZLIB)
    store.append(topic="Batch", body=zlib.compress(inner), sys_flag=INNER | UNWRAP | COMPRESSED, messages=2)
    options = {"failOnDataLoss": "false"} | ({"maxRecordsPerPartition": "1000"} if by_queues else {})
    found = rows(frame_of(spark, store, "ringmq-jvm", **options))
    assert sorted(row["value"] for row in found) == [b"first", b"last", b"one", b"one", b"two", b"two"]
    assert found == rows(frame_of(spark, store, "ringmq", **options))


def test_a_batch_of_rows_ends_before_its_bodies_are_too_much(spark: Any, tmp_path: Path) -> None:
    """A record is small in the log, however much it unpacks to."""
    store = MadeStore(tmp_path / "store")
    for number in range(20):
        store.append(body=zlib.compress(bytes([number]) * (1 << 20)), sys_flag=COMPRESSED)
    for options in ({}, {"maxRecordsPerPartition": "1000"}):
        frame = frame_of(spark, store, "ringmq-jvm", **options).selectExpr("offset", "substr(value, -1) AS last")
        assert sorted((row["offset"], row["last"]) for row in frame.collect()) == [(n, bytes([n])) for n in range(20)]


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("damage", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x60"])
def test_a_broken_record(spark: Any, made: MadeStore, damage: bytes, filtered: bool) -> None:
    """Whatever size it claims: an error that names the place, or all other rows."""
    position, _, fields, queue_offset = made.places[300]
    made.damage(position, damage)
    condition = "offset < 100"  # the compressed body lies behind
    if filtered:
        condition += f" AND topic = '{fields.topic}' AND partition = {fields.queue_id}"
    columns = "topic", "partition", "offset", "key"
    with pytest.raises(Exception, match=f"commit log offset {position}: "):
        frame_of(spark, made, "ringmq-jvm").where(condition).select(*columns).collect()
    found = frame_of(spark, made, "ringmq-jvm", failOnDataLoss="false").where(condition).select(*columns)
    missing = {(fields.topic, fields.queue_id, queue_offset)}
    wanted = {
        (place[2].topic, place[2].queue_id, place[3])
        for place in made.places[:600]
        if not filtered or (place[2].topic, place[2].queue_id) == (fields.topic, fields.queue_id)
    }
    assert {(row["topic"], row["partition"], row["offset"]) for row in rows(found)} == wanted - missing


@pytest.mark.parametrize("filtered", [False, True])
def test_a_record_that_no_queue_has_is_left_out(spark: Any, made: MadeStore, filtered: bool) -> None:
    """Dispatch indexes none with an impossible value: no row is lost, and a job goes on."""
    position, _, fields, queue_offset = made.places[300]
    made.damage(position + 28, bytes(7) + b"\x09")
    made.write_filler(fields.topic, fields.queue_id, queue_offset)
    condition = "offset < 100"
    if filtered:
        condition += f" AND topic = '{fields.topic}' AND partition = {fields.queue_id}"
    found = rows(frame_of(spark, made, "ringmq-jvm").where(condition).select("topic", "partition", "offset", "key"))
    wanted = {
        (place[2].topic, place[2].queue_id, place[3])
        for place in made.places[:600]
        if not filtered or (place[2].topic, place[2].queue_id) == (fields.topic, fields.queue_id)
    }
    left = wanted - {(fields.topic, fields.queue_id, queue_offset)}
    assert {(row["topic"], row["partition"], row["offset"]) for row in found} == left


@pytest.mark.parametrize("numbers", [[0], [7, 8], [-1], [0, -1, 4]], ids=str)
def test_offsets_that_were_left_out_count_for_nothing(spark: Any, made: MadeStore, numbers: list[int]) -> None:
    """Neither in an aggregate that the queues answer, nor in a read of offsets alone."""
    fields = made.places[300][2]
    places = [place for place in made.places if (place[2].topic, place[2].queue_id) == (fields.topic, fields.queue_id)]
    left_out = {places[number][3] for number in numbers}
    for queue_offset in left_out:
        made.write_filler(fields.topic, fields.queue_id, queue_offset)
    condition = f"topic = '{fields.topic}' AND partition = {fields.queue_id} AND offset < 100"
    kept = [place for place in places if place[3] < 100 and place[3] not in left_out]
    frame = frame_of(spark, made, "ringmq-jvm").where(condition)
    frame.createOrReplaceTempView("log")
    (answer,) = spark.sql("SELECT count(*), min(offset), max(offset) FROM log").collect()
    assert tuple(answer) == (len(kept), kept[0][3], kept[-1][3])
    assert [row["offset"] for row in frame.select("offset").orderBy("offset").collect()] == [p[3] for p in kept]
    assert frame.select("key", "offset").count() == len(kept)
    assert frame_of(spark, made, "ringmq").where(condition).select("offset").count() == len(kept)


def test_a_log_file_that_is_gone(spark: Any, made: MadeStore) -> None:
    """Retention between the plan and the read."""
    frame = frame_of(spark, made, "ringmq-jvm").where("offset < 100").select("key")
    gone = made.segment(made.places[0][0])
    frame._jdf.queryExecution().executedPlan()
    gone.rename(gone.with_name("aside"))
    with pytest.raises(Exception, match=f"{gone.name}.*deleted since the read was planned"):
        frame.collect()


def batch_store(root: Path) -> MadeStore:
    """A batch queue of 600 messages in two files, each record three of them; as many bytes of another queue."""
    store = MadeStore(root, units_per_file=100, batch_topics=frozenset({"Batch"}))
    for number in range(200):
        body = inner_batch_bytes([(b"%d/%d" % (number, place), b"") for place in range(3)])
        store.append(topic="Batch", body=body, sys_flag=INNER | UNWRAP, messages=3)
        store.append(topic="Other", body=bytes(600))
    return store


def plain_store(root: Path) -> MadeStore:
    """A queue of 200 messages in two files; as many bytes of another queue."""
    store = MadeStore(root, units_per_file=100)
    for number in range(200):
        store.append(topic="Plain", body=b"%d" % number)
        store.append(topic="Other", body=bytes(300))
    return store


@pytest.mark.parametrize(
    ("topic", "lost", "gone", "left"),
    [
        ("Plain", "first file", "offsets 0 to 99", range(100, 200)),
        ("Plain", "last file", "offsets 100 to 199", range(100)),
        ("Plain", "queue", "offsets 0 to 199", range(0)),
        ("Plain", "last units", "offsets 150 to 199", range(150)),
        ("Plain", "units again", "offsets 0 to 199", range(0)),
        ("Batch", "first file", "offsets 0 to 299", range(300, 600)),
        ("Batch", "last file", "offsets 300 to 599", range(300)),
        ("Batch", "queue", "offsets 0 to 599", range(0)),
        ("Batch", "last units", "offsets 450 to 599", range(450)),
    ],
)
def test_units_that_go_between_plan_and_read(
    spark: Any, tmp_path: Path, topic: str, lost: str, gone: str, left: range
) -> None:
    """By retention, with their topic, or because the topic was made again: a loss that is told, or the other rows."""
    is_batch = topic == "Batch"
    store = (batch_store if is_batch else plain_store)(tmp_path / "store")
    unit_bytes = 46 if is_batch else 20
    folder = store.root / ("batchconsumequeue" if is_batch else "consumequeue") / topic / "0"
    first, last = folder / f"{0:020d}", folder / f"{100 * unit_bytes:020d}"
    frames = []
    for strict in ("true", "false"):
        frame = frame_of(spark, store, "ringmq-jvm", failOnDataLoss=strict)
        frames.append(frame.where(f"topic = '{topic}' AND partition = 0").select("offset", "value"))
        assert "BatchScan" in plan_of(frames[-1])
        frames[-1]._jdf.queryExecution().executedPlan().execute().getNumPartitions()
    if lost == "queue":
        folder.rename(tmp_path / "aside")
    elif lost == "last units":
        with last.open("r+b") as file:
            file.seek(50 * unit_bytes)
            file.write(bytes(50 * unit_bytes))
    elif lost == "units again":
        for number in range(200):
            store.write_unit(folder, number, struct.pack(">qiq", store.end + 100 * number, 100, 0))
    else:
        (first if lost == "first file" else last).rename(tmp_path / "aside")
    with pytest.raises(Exception, match=f"queue 0 of {topic}: {gone} were deleted since the read was planned"):
        frames[0].collect()
    assert sorted(row["offset"] for row in frames[1].collect()) == list(left)


def test_a_store_that_crashed_is_left_to_the_python_source(spark: Any, made: MadeStore) -> None:
    (made.root / "abort").touch()
    with pytest.raises(Exception, match="not stopped cleanly"):
        frame_of(spark, made, "ringmq-jvm").count()


def test_a_store_that_a_newer_ringmq_has_written_is_not_read(spark: Any, made: MadeStore) -> None:
    (made.root / "ringmq.format").write_text("9 ringmq 9.0\n")
    with pytest.raises(Exception, match=r"format 9, written by ringmq 9\.0; this ringmq-jvm reads formats up to 1"):
        frame_of(spark, made, "ringmq-jvm").count()


def test_the_end_is_not_known_while_a_broker_starts(spark: Any, made: MadeStore, tmp_path: Path) -> None:
    """A RingMQ holds the store and has not published its watermark page: it recovers.

    Meanwhile so many other locks come and go that the kernel's list, which is given in pieces, skips some.
    """
    (made.root / "abort").touch()
    lock = StoreLock(made.root)
    try:
        with other_locks(tmp_path), pytest.raises(Exception, match=f"{made.root}: its broker is starting"):
            frame_of(spark, made, "ringmq-jvm").count()
    finally:
        lock.close()


def test_read_takes_the_fastest_source_that_serves(
    spark: Any, golden_store: Path, manifest: list[dict[str, Any]]
) -> None:
    """Times are resolved for the JVM source; brokers by address are the Python source's."""
    from pyspark_ringmq.jvm import jvm_options

    from ringmq.spark_bridge import read

    start_ms = min(entry["storeTimestamp"] for entry in manifest if entry["topic"] == "GoldA")
    options = {"store": str(golden_store), "subscribe": "GoldA", "startingTimestamp": start_ms, "includeHeaders": True}
    frame = read(spark, **options)
    assert "BatchScan ringmq-jvm" in plan_of(frame)
    texts = {name: str(value).lower() if value is True else str(value) for name, value in options.items()}
    assert rows(frame) == rows(spark.read.format("ringmq").options(**texts).load())
    assert jvm_options(spark, {"bootstrap": "127.0.0.1:9876"}) is None
    assert jvm_options(spark, {"store": str(golden_store), "bootstrap": "127.0.0.1:9876", "transport": "tcp"}) is None


def test_a_live_broker_s_store(spark: Any, tmp_path: Path) -> None:
    """All that was acknowledged is there at once; what is appended and not yet durable is not."""
    server = servers.RingmqServer(tmp_path, SETTINGS)
    try:
        for number in range(8):
            asyncio.run(send(server.namesrv, f"body {number}".encode()))
        frames = {
            name: spark.read.format(name).options(store=str(server.store), columns=",".join(COLUMNS)).load()
            for name in ("ringmq", "ringmq-jvm")
        }
        assert frames["ringmq-jvm"].count() == 8
        found = rows(frames["ringmq-jvm"])
        assert {row["value"] for row in found} == {f"body {number}".encode() for number in range(8)}
        assert {row["broker"] for row in found} == {servers.BROKER_NAME}
        assert found == rows(frames["ringmq"])
        worker = worker_of(server, "flush")
        os.kill(worker, signal.SIGSTOP)
        try:
            assert asyncio.run(while_unanswered(server, frames["ringmq-jvm"].count)) == 8
        finally:
            os.kill(worker, signal.SIGCONT)
        wait_until(lambda: frames["ringmq-jvm"].count() == 9, "the flush goes on and the message is readable")
        server.stop()
        assert frames["ringmq-jvm"].count() == 9, "without an owner the queues' end is the bound"
    finally:
        server.close()


def test_the_first_queue_is_made_while_a_read_waits_for_dispatch(spark: Any, tmp_path: Path) -> None:
    server = servers.RingmqServer(tmp_path, {"mappedFileSizeCommitLog": 1 << 20})
    try:
        worker = worker_of(server, "dispatch")
        os.kill(worker, signal.SIGSTOP)
        going_on = threading.Timer(1.0, os.kill, (worker, signal.SIGCONT))
        try:
            asyncio.run(send(server.namesrv, b"first"))
            going_on.start()
            assert spark.read.format("ringmq-jvm").options(store=str(server.store)).load().count() == 1
        finally:
            os.kill(worker, signal.SIGCONT)
            going_on.join()
    finally:
        server.close()


def is_safe(server: servers.RingmqServer, body: bytes) -> bool:
    """Send; a message that is stored while the slave is not yet there is not safe."""
    try:
        result = asyncio.run(send(server.namesrv, body, RetryPolicy(attempts=1, budget_ms=30_000)))
    except SendError:
        return False
    return result.status is SendStatus.OK


def test_what_no_slave_has_confirmed_is_not_there(spark: Any, tmp_path: Path) -> None:
    patient = {"slaveTimeout": 120_000, "haHousekeepingInterval": 600_000, "mappedFileSizeCommitLog": 1 << 20}
    server = servers.RingmqServer(tmp_path, {"brokerRole": "SYNC_MASTER", **patient})
    try:
        with RawSlave(ha_port(server)) as slave:
            wait_until(lambda: is_safe(server, b"confirmed"), "the slave counts")
            frame = spark.read.format("ringmq-jvm").options(store=str(server.store)).load()
            confirmed = frame.count()
            assert confirmed >= 1, "what came before the slave was there is confirmed with it"
            slave.reports = False
            assert asyncio.run(while_unanswered(server, frame.count)) == confirmed
            slave.reports = True
            wait_until(lambda: frame.count() == confirmed + 1, "the slave reports and the message is readable")
    finally:
        server.close()


def test_a_page_left_behind_is_not_the_stock_owner_s(spark: Any, golden_store: Path, tmp_path: Path) -> None:
    """A stock broker's lock belongs to its process; what a killed RingMQ says beside it is of another life."""
    store = tmp_path / "store"
    shutil.copytree(golden_store, store)
    frame = spark.read.format("ringmq-jvm").options(store=str(store), columns="offset").load()
    everything = frame.count()
    status = store.stat()
    try:
        with create_segment(plane_name(store), "watermarks", 4096) as page:
            struct.pack_into("=QII", page, 0, MAGIC, 1, 0)
            struct.pack_into("=QQ", page, 32, status.st_dev, status.st_ino)
            for at in (64, 128, 192):
                struct.pack_into("=Q", page, at, 500)
            with held_by_stock(store):
                assert frame.select("offset").count() == everything
    finally:
        remove_segments(plane_name(store))
