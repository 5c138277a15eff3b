"""Tasks of a write at a real broker, without Spark: sent straight, staged, run again in another order, and at stock."""

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ringmq.client.producing.staged_writes import CommitRequest, commit_staged
from ringmq.loadtest.load.running import RunningBroker
from ringmq.spark_bridge.sink.options import WriteOptions
from ringmq.spark_bridge.sink.plan import WritePlan, plan_batch_write, plan_stream_write
from ringmq.spark_bridge.sink.task import Attempt, Written, stage, write_directly
from tests.staging import bodies_of, make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(400)
VALUE = [("value", "binary")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"mappedFileSizeCommitLog": 1 << 24, "mappedFileSizeConsumeQueue": 60_000, "maxIndexNum": 400}
    with RunningBroker(tmp_path_factory.mktemp("sink") / "store", settings) as running:
        yield running


def batches(values: list[bytes], size: int = 100) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(values), size):
        yield pa.record_batch({"value": pa.array(values[begin : begin + size])})


def staged(plan: WritePlan, batch: int, partition: int, values: list[bytes], attempt: int = 0) -> Written:
    assert plan.staging is not None
    return stage(plan, plan.staging, Attempt("query", batch, partition, attempt), batches(values))


def commit(plan: WritePlan, batch: int, *written: Written) -> None:
    assert plan.staging is not None
    chunks = tuple(chunk for task in written for chunk in task.chunks)
    request = CommitRequest("query", batch, chunks)
    commit_staged(plan.options.bootstrap, plan.staging.broker_name, request, 20_000)


def rows(name: str, count: int = 1000) -> list[bytes]:
    return [f"{name}/{number:05d}".encode() for number in range(count)]


def settled(address: str, topic: str, count: int) -> list[bytes]:
    wait_until(lambda: len(bodies_of(address, topic)) >= count, f"{count} rows of {topic} are readable")
    return bodies_of(address, topic)


def test_rows_go_straight_to_their_topics(broker: RunningBroker) -> None:
    make_topic(broker.address, "Direct")
    plan = plan_batch_write(WriteOptions(broker.namesrv, "Direct", chunk_bytes=4096), VALUE, overwrite=False)
    written = write_directly(plan, batches(rows("d")))
    assert written.rows == 1000 and not written.chunks
    assert sorted(settled(broker.address, "Direct", 1000)) == rows("d")


def test_all_columns_arrive(broker: RunningBroker) -> None:
    make_topic(broker.address, "Columns", 2)
    row: dict[str, Any] = {
        "value": "text", "key": "k1 k2", "topic": "Columns", "tags": "t", "partition": 1,
        "headers": [{"key": "h", "value": b"v"}],
    }  # fmt: skip
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    fields = [("value", pa.string()), ("key", pa.string()), ("topic", pa.string()), ("tags", pa.string()),
              ("partition", pa.int32()), ("headers", headers)]  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], pa.schema(fields))
    kinds = [(name, "int" if name == "partition" else "string") for name, _ in fields[:-1]]
    plan = plan_batch_write(
        WriteOptions(broker.namesrv), [*kinds, ("headers", "array<struct<key:string,value:binary>>")], overwrite=False
    )
    assert write_directly(plan, iter([batch])).rows == 1
    wait_until(lambda: messages_of(broker.address, "Columns"), "it is readable")
    (message,) = messages_of(broker.address, "Columns")
    assert (bytes(message.body), message.queue_id) == (b"text", 1)
    found = message.properties
    assert (found["KEYS"], found["TAGS"], found["h"], len(found["UNIQ_KEY"])) == ("k1 k2", "t", "v", 32)


def test_a_micro_batch_that_runs_again_in_another_order_adds_nothing(broker: RunningBroker) -> None:
    make_topic(broker.address, "Order")
    plan = plan_stream_write(WriteOptions(broker.namesrv, "Order", chunk_bytes=4096), VALUE)
    assert plan.staging is not None
    first, second = rows("p0"), rows("p1")
    tasks = [staged(plan, 0, 0, first), staged(plan, 0, 1, second)]
    assert len(tasks[0].chunks) > 5 and bodies_of(broker.address, "Order") == []
    commit(plan, 0, *tasks)
    other = [staged(plan, 0, 0, (first + second)[::-1][:700], 1), staged(plan, 0, 1, (first + second)[::-1][700:], 1)]
    commit(plan, 0, *other)
    commit(plan, 1, staged(plan, 1, 0, rows("next", 10)))
    found = settled(broker.address, "Order", 2010)
    assert sorted(found) == sorted(first + second + rows("next", 10))


def test_rows_of_a_queue_keep_their_order(broker: RunningBroker) -> None:
    make_topic(broker.address, "Sorted", 1)
    plan = plan_stream_write(WriteOptions(broker.namesrv, "Sorted", chunk_bytes=4096), VALUE)
    commit(plan, 7, staged(plan, 7, 0, rows("s")))
    assert settled(broker.address, "Sorted", 1000) == rows("s")


def test_rows_with_a_delay_level_come_later(broker: RunningBroker) -> None:
    make_topic(broker.address, "Delay", 1)
    batch = pa.record_batch({"value": pa.array([b"later", b"now"]), "delayLevel": pa.array([1, None], pa.int32())})
    options = WriteOptions(broker.namesrv, "Delay", send_timeout_ms=60_000)
    plan = plan_batch_write(options, [*VALUE, ("delayLevel", "int")], overwrite=False)
    assert write_directly(plan, iter([batch])).rows == 2
    assert set(settled(broker.address, "Delay", 2)) == {b"now", b"later"}
    later, now = sorted(messages_of(broker.address, "Delay"), key=lambda message: bytes(message.body))
    assert later.store_timestamp_ms - later.born_timestamp_ms >= 1000, "level 1 is a second"
    assert "REAL_TOPIC" in later.properties and "REAL_TOPIC" not in now.properties, "only one has waited"


def test_rows_with_a_time_come_at_it(broker: RunningBroker) -> None:
    make_topic(broker.address, "Timer", 1)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    due = pa.array([soon, None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array([b"later", b"now"]), "deliverAt": due})
    options = WriteOptions(broker.namesrv, "Timer", send_timeout_ms=60_000)
    plan = plan_batch_write(options, [*VALUE, ("deliverAt", "timestamp")], overwrite=False)
    assert write_directly(plan, iter([batch])).rows == 2
    assert set(settled(broker.address, "Timer", 2)) == {b"now", b"later"}
    later, now = sorted(messages_of(broker.address, "Timer"), key=lambda message: bytes(message.body))
    assert later.store_timestamp_ms >= int(soon.timestamp() * 1000)
    assert "TIMER_DELIVER_MS" in later.properties and "TIMER_DELIVER_MS" not in now.properties
