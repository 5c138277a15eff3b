"""Structured Streaming from a live broker: batches, limits, topics that come and go, restarts, lag and progress."""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ringmq.cli.admin import Admin
from ringmq.client import MessageQueue, compose_message
from ringmq.client.blocking import Producer
from ringmq.client.connections.name_servers import NameServers, RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.offsets import QueueOffsets
from ringmq.spark_bridge.lag import StreamLag, lag_listener
from tests.conformance import servers
from tests.waiting import wait_until

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Row = tuple[str, int, int, bytes]
SETTINGS = {"mappedFileSizeCommitLog": 1 << 20}
WAIT_S = 150
STARTS_MAX = 5
LATE_WORKER = "Python worker failed to connect back"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RingmqServer]:
    """A broker for the tests that only need one; each has topics of its own."""
    running = servers.RingmqServer(tmp_path_factory.mktemp("stream"), SETTINGS)
    try:
        yield running
    finally:
        running.close()


class Stream:
    """A query over topics of a store that keeps its rows, batch by batch, in the test's process."""

    def __init__(self, spark: Any, store: Path, checkpoint: Path, options: Mapping[str, str]) -> None:
        self.batches: list[list[Row]] = []
        self.fails = False
        reader = spark.readStream.format("ringmq").options(store=str(store), startingOffsets="earliest")
        frame = reader.options(**options).load().select("topic", "partition", "offset", "value")
        self._writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(self._take)

    def _take(self, frame: Any, batch_id: int) -> None:
        if self.fails:
            raise RuntimeError("the sink is full")
        rows = [(row["topic"], row["partition"], row["offset"], bytes(row["value"])) for row in frame.collect()]
        if rows:
            self.batches.append(rows)

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    @property
    def bodies(self) -> Counter[bytes]:
        return Counter(body for _, _, _, body in self.rows)

    def run_to_the_end(self) -> "Stream":
        """With Trigger.AvailableNow. Raises the query's error."""
        query = self._start(availableNow=True)
        query.awaitTermination()
        return self

    def start(self) -> Any:
        """A query that goes on until it is stopped."""
        return self._start(processingTime="20 milliseconds")

    def _start(self, **trigger: Any) -> Any:
        """Spark gives the planning worker ten seconds to start, which a machine full of tests may exceed."""
        for _ in range(STARTS_MAX):
            query = self._writer.trigger(**trigger).start()
            wait_until(lambda query=query: _has_begun(query), "the query plans or ends", WAIT_S)
            if LATE_WORKER not in str(query.exception()):
                break
        return query


def _has_begun(query: Any) -> bool:
    return not query.isActive or not query.status["message"].startswith("Initializing")


@pytest.fixture
def stream(spark: Any, server: servers.RingmqServer, tmp_path: Path) -> Callable[..., Stream]:
    def make(**options: str) -> Stream:
        return Stream(spark, server.store, tmp_path / "checkpoint", options)

    return make


def send(namesrv: str, topic: str, count: int, first: int = 0) -> set[bytes]:
    """Send numbered messages; returns their bodies."""
    bodies = [b"%s-%d" % (topic.encode(), number) for number in range(first, first + count)]
    with Producer(namesrv) as producer:
        producer.send(compose_message(topic, bodies[0]))
        producer.send_all(compose_message(topic, body) for body in bodies[1:])
    return set(bodies)


def assert_whole(rows: list[Row], bodies: set[bytes]) -> None:
    """Every message once, every queue from offset 0 without a gap."""
    assert Counter(body for _, _, _, body in rows) == Counter(bodies)
    queues: dict[tuple[str, int], list[int]] = {}
    for topic, queue, offset, _ in rows:
        queues.setdefault((topic, queue), []).append(offset)
    for queue_rows in queues.values():
        assert queue_rows == list(range(len(queue_rows))), "in order within a queue"


def test_available_now_reads_all_rows_once_in_batches(
    server: servers.RingmqServer, stream: Callable[..., Stream]
) -> None:
    bodies = send(server.namesrv, "Limited", 1000)
    first = stream(subscribe="Limited", maxOffsetsPerTrigger="300").run_to_the_end()
    assert [len(batch) for batch in first.batches] == [300, 300, 300, 100]
    assert_whole(first.rows, bodies)
    more = send(server.namesrv, "Limited", 50, first=1000)
    second = stream(subscribe="Limited", maxOffsetsPerTrigger="300").run_to_the_end()
    assert second.bodies == Counter(more), "the checkpoint's place"


def test_a_first_batch_that_failed_is_repeated_as_it_was(
    server: servers.RingmqServer, stream: Callable[..., Stream]
) -> None:
    """Without a committed batch Spark asks again where the query begins: `latest` means the first answer."""
    send(server.namesrv, "Failing", 10)
    failing = stream(subscribe="Failing", startingOffsets="latest")
    failing.fails = True
    with pytest.raises(Exception, match="the sink is full"):
        failing.run_to_the_end()
    bodies = send(server.namesrv, "Failing", 5, first=10)
    assert stream(subscribe="Failing", startingOffsets="latest").run_to_the_end().bodies == Counter(bodies)


def test_few_rows_are_waited_for(server: servers.RingmqServer, stream: Callable[..., Stream]) -> None:
    send(server.namesrv, "Patient", 10)
    patient = stream(subscribe="Patient", minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    query = patient.start()
    try:
        wait_until(lambda: len(patient.rows) == 10, "the first batch waits for nothing", WAIT_S)
        send(server.namesrv, "Patient", 99, first=10)
        time.sleep(0.5)  # span: many triggers
        assert len(patient.rows) == 10
        send(server.namesrv, "Patient", 1, first=109)
        wait_until(lambda: len(patient.rows) == 110, "enough rows have come", WAIT_S)
    finally:
        query.stop()


def test_a_new_topic_is_read_from_its_first_offset(server: servers.RingmqServer, stream: Callable[..., Stream]) -> None:
    bodies = send(server.namesrv, "GrowA", 20)
    growing = stream(subscribePattern="Grow.*", startingOffsets="latest")
    query = growing.start()
    try:
        wait_until(lambda: query.lastProgress is not None, "the query has its place", WAIT_S)
        bodies = send(server.namesrv, "GrowB", 30)
        wait_until(lambda: len(growing.rows) == 30, "the new topic's rows come", WAIT_S)
        bodies |= send(server.namesrv, "GrowA", 5, first=20)
        wait_until(lambda: len(growing.rows) == 35, "and those of the old one", WAIT_S)
    finally:
        query.stop()
    assert growing.bodies == Counter(bodies)


def test_a_broker_killed_in_mid_stream(spark: Any, tmp_path: Path) -> None:
    server = servers.RingmqServer(tmp_path / "one", SETTINGS)
    try:
        bodies = send(server.namesrv, "Killed", 500)
        stream = Stream(spark, server.store, tmp_path / "checkpoint", {"subscribe": "Killed"})
        query = stream.start()
        wait_until(lambda: len(stream.rows) == 500, "the rows before the kill", WAIT_S)
        server.kill()
        server = servers.RingmqServer(tmp_path / "two", SETTINGS, store=server.store)
        bodies |= send(server.namesrv, "Killed", 500, first=500)
        wait_until(lambda: len(stream.rows) >= 1000, "the rows behind it", WAIT_S)
        assert query.isActive
        query.stop()
        assert_whole(stream.rows, bodies)
    finally:
        server.close()


def delete_topic(namesrv: str, topic: str) -> None:
    async def delete() -> None:
        client = RemotingClient()
        try:
            await Admin(client, [namesrv]).delete_topic(topic)
        finally:
            await client.close()

    asyncio.run(delete())


@pytest.mark.parametrize("created_again", [False, True])
def test_a_deleted_topic(server: servers.RingmqServer, stream: Callable[..., Stream], created_again: bool) -> None:
    topic = f"Deleted{created_again}"
    send(server.namesrv, topic, 100)
    bodies = send(server.namesrv, f"{topic}Kept", 10)
    assert len(stream(subscribePattern=f"{topic}.*").run_to_the_end().rows) == 110
    delete_topic(server.namesrv, topic)
    if created_again:
        wait_until(lambda: not (server.store / "consumequeue" / topic).exists(), "the topic is gone")
        bodies = send(server.namesrv, topic, 7)
    with pytest.raises(Exception, match=rf"of topic {topic} (?s:.*)failOnDataLoss"):
        stream(subscribePattern=f"{topic}.*").run_to_the_end()
    going_on = stream(subscribePattern=f"{topic}.*", failOnDataLoss="false").run_to_the_end()
    assert going_on.bodies == (Counter(bodies) if created_again else Counter())


def test_rows_that_retention_has_taken(spark: Any, tmp_path: Path) -> None:
    server = servers.RingmqServer(tmp_path / "server", SETTINGS)
    try:
        body = b"x" * 4000
        with Producer(server.namesrv) as producer:
            sent = producer.send_all([compose_message("Aged", body) for _ in range(800)])
    finally:
        server.stop()
    (server.store / "commitlog" / f"{0:020}").unlink()
    start = json.dumps({"Aged": {f"judged:{queue}": 0 for queue in range(4)}})

    def read(**options: str) -> Stream:
        place = tmp_path / options["failOnDataLoss"]
        return Stream(spark, server.store, place, {"subscribe": "Aged", "startingOffsets": start, **options})

    with pytest.raises(Exception, match=r"offsets 0 to [0-9]+ of queue judged:0 of topic Aged were deleted"):
        read(failOnDataLoss="true").run_to_the_end()
    kept = read(failOnDataLoss="false").run_to_the_end().rows
    assert 0 < len(kept) < 800
    kept.sort(key=lambda row: row[2])
    by_queue: dict[int, list[int]] = {}
    for _, queue, offset, _ in kept:
        by_queue.setdefault(queue, []).append(offset)
    ends = {queue: max(one.queue_offset for one in sent if one.queue.queue_id == queue) + 1 for queue in by_queue}
    assert all(offsets == list(range(offsets[0], ends[queue])) for queue, offsets in by_queue.items())


def test_lag_is_published_for_each_topic(
    spark: Any, server: servers.RingmqServer, stream: Callable[..., Stream]
) -> None:
    send(server.namesrv, "Lagging", 90)
    send(server.namesrv, "LaggingToo", 10)
    told: list[StreamLag] = []
    listener = lag_listener(told.append, group="readers")
    spark.streams.addListener(listener)
    try:
        stream(subscribe="Lagging,LaggingToo", maxOffsetsPerTrigger="50").run_to_the_end()
        wait_until(lambda: len(told) >= 2, "both batches were told")
    finally:
        spark.streams.removeListener(listener)
    first, last = told[0], told[1]
    assert first.total == 50
    assert first.topics["Lagging"] > first.topics["LaggingToo"] > 0
    assert (last.total, last.group, last.batch_id) == (0, "readers", 1)
    assert last.topics.keys() == {"Lagging", "LaggingToo"}


def committed(namesrv: str, group: str, topic: str) -> dict[int, int | None]:
    async def ask() -> dict[int, int | None]:
        client = RemotingClient()
        offsets = QueueOffsets(client, RouteTable(NameServers(client, [namesrv])))
        try:
            queues = [MessageQueue(topic, servers.BROKER_NAME, queue_id) for queue_id in range(4)]
            return {queue.queue_id: await offsets.committed(group, queue) for queue in queues}
        finally:
            await client.close()

    return asyncio.run(ask())


def test_progress_shows_in_a_group(server: servers.RingmqServer, stream: Callable[..., Stream]) -> None:
    send(server.namesrv, "Watched", 80)
    done = stream(subscribe="Watched", commitGroup="spark_watchers", bootstrap=server.namesrv).run_to_the_end()
    places = Counter(queue for _, queue, _, _ in done.rows)
    wait_until(lambda: committed(server.namesrv, "spark_watchers", "Watched") == places, "the group has the offsets")


def test_rows_come_while_they_are_produced(server: servers.RingmqServer, stream: Callable[..., Stream]) -> None:
    bodies = send(server.namesrv, "Live", 1)
    live = stream(subscribe="Live")
    query = live.start()

    def send_slowly() -> None:
        for number in range(1, 900, 100):
            bodies.update(send(server.namesrv, "Live", 100, number))

    sender = threading.Thread(target=send_slowly)
    sender.start()
    try:
        sender.join()
        wait_until(lambda: len(live.rows) >= 901, "all rows come", WAIT_S)
    finally:
        query.stop()
    assert_whole(live.rows, bodies)
