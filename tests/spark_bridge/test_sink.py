"""Spark writes: batches and streams, and exactly once when tasks, drivers and brokers die."""

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker, wait_ended
from ringmq.native import lib
from tests.staging import bodies_of, make_topic, messages_of
from tests.waiting import wait_until

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
JOB_LIMIT_S = 500
"""A job takes some 15 s where nothing else runs; a JVM that shares two CPUs with twenty others takes minutes."""
JOB = Path(__file__).with_name("sink_job.py")
SETTINGS = {"mappedFileSizeCommitLog": 1 << 24, "mappedFileSizeConsumeQueue": 60_000, "maxIndexNum": 400}
FILES, ROWS = 4, 400
WORKERS = (lib.RMQ_ROLE_CONTROL, lib.RMQ_ROLE_WRITE, lib.RMQ_ROLE_READ)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("sink") / "store", SETTINGS) as running:
        yield running


def put_files(folder: Path, files: int = FILES) -> list[bytes]:
    """Text files of distinct lines; all their lines."""
    (folder / "in").mkdir()
    lines = []
    for number in range(files):
        own = [f"{folder.name}-{number}-{row:04d}" for row in range(ROWS)]
        (folder / "in" / f"{number}.txt").write_text("\n".join(own) + "\n")
        lines += own
    return sorted(line.encode() for line in lines)


def readable(address: str, topic: str, count: int) -> list[bytes]:
    wait_until(lambda: len(bodies_of(address, topic)) >= count, f"{count} rows of {topic} are readable")
    return sorted(bodies_of(address, topic))


def test_a_batch_with_every_column(spark: Any, broker: RunningBroker) -> None:
    make_topic(broker.address, "SinkBatch")
    rows = spark.range(1000).selectExpr(
        "'SinkBatch' AS topic",
        "concat('row-', id) AS value",
        "cast(id AS string) AS key",
        "'red' AS tags",
        "cast(id % 2 AS int) AS partition",
        "array(named_struct('key', 'h', 'value', cast(concat('v', id) AS binary))) AS headers",
    )
    rows.write.format("ringmq").option("bootstrap", broker.namesrv).mode("append").save()
    wait_until(lambda: len(messages_of(broker.address, "SinkBatch")) == 1000, "all rows are readable")
    for message in messages_of(broker.address, "SinkBatch"):
        number = bytes(message.body).removeprefix(b"row-").decode()
        found = message.properties
        assert (found["KEYS"], found["TAGS"], found["h"]) == (number, "red", f"v{number}")
        assert message.queue_id == int(number) % 2


def test_what_cannot_be_written_is_named(spark: Any, broker: RunningBroker) -> None:
    rows = spark.range(3).selectExpr("cast(id AS string) AS value")
    write = rows.write.format("ringmq").option("bootstrap", broker.namesrv).mode("append")
    with pytest.raises(Exception, match="neither option topic nor a column topic"):
        write.save()
    with pytest.raises(Exception, match="NoSuchTopic: create it first"):
        write.option("topic", "NoSuchTopic").save()
    with pytest.raises(Exception, match="column 'offset' cannot be written"):
        rows.selectExpr("value", "1 AS offset").write.format("ringmq").options(
            bootstrap=broker.namesrv, topic="T"
        ).mode("append").save()
    make_topic(broker.address, "SinkNull")
    with pytest.raises(Exception, match="column value: null or empty"):
        rows.selectExpr("CAST(NULL AS string) AS value").write.format("ringmq").options(
            bootstrap=broker.namesrv, topic="SinkNull"
        ).mode("append").save()


def start_stream(spark: Any, broker: RunningBroker, folder: Path, topic: str) -> Any:
    rows = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
    return (
        rows.writeStream.format("ringmq")
        .options(bootstrap=broker.namesrv, topic=topic, delivery="exactly-once", chunkBytes="4096")
        .options(sendTimeoutMs="200000", commitTimeoutMs="200000")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_is_there_once_and_a_lost_checkpoint_entry_adds_nothing(
    spark: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    make_topic(broker.address, "SinkStream")
    expected = put_files(tmp_path)
    query = start_stream(spark, broker, tmp_path, "SinkStream")
    assert query.awaitTermination(JOB_LIMIT_S)
    assert readable(broker.address, "SinkStream", len(expected)) == expected
    # as if the driver had died between the broker's commit and its own note of it
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    query = start_stream(spark, broker, tmp_path, "SinkStream")
    assert query.awaitTermination(JOB_LIMIT_S)
    assert sorted(bodies_of(broker.address, "SinkStream")) == expected


def test_the_broker_dies_while_a_stream_writes(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    make_topic(broker.address, "SinkDeath")
    expected = put_files(tmp_path)
    chance, over, plane = random.Random(3), threading.Event(), Plane.open(plane_name(broker.store))

    def everybody_serves() -> bool:
        return all(plane.role(role).state == STATE_SERVING for role in WORKERS)

    def kill() -> None:
        names = ["control", "write", "read-0", "control", "control"]
        while names and not over.wait(0.3 + chance.random()):
            if everybody_serves():  # deaths while starting would rightly end the broker
                broker.signal_worker(names.pop(), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        query = start_stream(spark, broker, tmp_path, "SinkDeath")
        assert query.awaitTermination(JOB_LIMIT_S)
    finally:
        over.set()
        killer.join()
    assert readable(broker.address, "SinkDeath", len(expected)) == expected


def job(mode: str, broker: RunningBroker, topic: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(JOB), mode, broker.namesrv, topic, str(folder)]
    with (folder / "job.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def kill_job(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver with its JVM and workers, which end by themselves when the driver has gone."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    wait_ended(family[1:])


def run_job(mode: str, broker: RunningBroker, topic: str, folder: Path) -> None:
    process = job(mode, broker, topic, folder)
    try:
        assert process.wait(JOB_LIMIT_S) == 0, (folder / "job.log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            kill_job(process)


def test_a_task_that_dies_and_one_that_is_started_twice(broker: RunningBroker, tmp_path: Path) -> None:
    make_topic(broker.address, "SinkTasks")
    expected = put_files(tmp_path)
    run_job("cluster", broker, "SinkTasks", tmp_path)
    assert readable(broker.address, "SinkTasks", len(expected)) == expected


def test_a_driver_that_is_killed_at_any_time(broker: RunningBroker, tmp_path: Path) -> None:
    make_topic(broker.address, "SinkDriver")
    expected = put_files(tmp_path)
    commits, chance = tmp_path / "checkpoint" / "commits", random.Random(5)

    process = job("driver", broker, "SinkDriver", tmp_path)
    try:
        wait_until(lambda: list(commits.glob("[0-9]*")), "a micro-batch is committed", JOB_LIMIT_S)
        time.sleep(chance.random() * 0.5)  # a span before the fault, drawn from the seed
    finally:
        kill_job(process)
    run_job("driver", broker, "SinkDriver", tmp_path)
    assert readable(broker.address, "SinkDriver", len(expected)) == expected
