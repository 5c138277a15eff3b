"""Rows of the Spark bench beside a running broker: the cost of a scan, transports, the sink, a live stream."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ringmq.loadtest.bench.rows import SETTLED_MS
from ringmq.loadtest.load.process_stats import cpu_seconds, family
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import StockTarget
from ringmq.loadtest.load.tools import Report, ToolError
from ringmq.loadtest.measuring.measurement import Measurement
from ringmq.loadtest.spark.cpu_load import CpuLoad
from ringmq.loadtest.spark.log_fill import QUEUES, TOPICS, fill_topics
from ringmq.loadtest.spark.rows import RATIO
from ringmq.loadtest.spark.session import stock_classes
from ringmq.loadtest.spark.workbench import LIVE, Workbench, seconds_of, to_noop
from ringmq.loadtest.stock.java import LOGBACK, stock_classpath

BODY_BYTES = 1024
PRODUCERS = 64
STREAM_RATE = 1000  # messages/s
STREAM_START_S = 60.0
WARM_UP_MESSAGES = 100
FIRST_BATCHES = 3  # a query's first micro-batches compile its code
STOCK_SHARE = 4  # the stock store is smaller by that: its client is slow
# A full send queue is waited for: the fill is faster than stock.
STOCK_SETTINGS = {"messageIndexEnable": False, "waitTimeMillsInSendQueue": 60_000}
P95 = 0.95
LOAD_SHARE_MIN = 0.9
POLL_S = 0.05
T = TypeVar("T")


def broker_cpu(bench: Workbench) -> Measurement:
    """Measure CPU time of all broker processes while the store is scanned repeatedly, in percent of one CPU."""
    with bench.broker_on("1k") as broker:
        frame = bench.frame("1k", transport="shm")
        to_noop(frame)  # whatever a start leaves to do is done
        pids = family(broker.process.pid)
        began, used, scans = time.monotonic(), cpu_seconds(pids), 0
        while time.monotonic() < began + bench.seconds:
            to_noop(frame)
            scans += 1
        elapsed = time.monotonic() - began
        return Measurement({"ours": 100 * (cpu_seconds(pids) - used) / elapsed, "scan_s": elapsed / scans})


def producer_beside_scan(bench: Workbench) -> Measurement:
    """Measure sends per second (64 connections, 1 in flight, 1 KiB) beside repeated scans of the log.

    The reference is the same beside processes that only use as much CPU as the scans did.
    """
    with bench.broker_on(LIVE) as broker:
        frame = bench.frame(LIVE, transport="shm")
        to_noop(frame)
        load = _Load(bench, broker, "beside_scan")
        spark = bench.spark_pids()
        began, used = time.monotonic(), cpu_seconds(spark)
        while load.is_alive():
            to_noop(frame)
        cpus = (cpu_seconds(spark) - used) / (time.monotonic() - began)
        with CpuLoad(cpus, bench.cores, 10 * bench.seconds + 60) as cpu_load:
            beside_load = _Load(bench, broker, "beside_load")
            beside_load.join()
            load_cpus = cpu_seconds(cpu_load.pids) / bench.seconds
        ours, other = load.rate(), beside_load.rate()
    values = {RATIO: ours / other, "ours": ours, "other": other, "scan_cpus": cpus, "load_cpus": load_cpus}
    unequal = load_cpus < LOAD_SHARE_MIN * cpus
    note = f"the CPU load got {load_cpus:.2f} CPUs, the scans {cpus:.2f}: something else is running" if unequal else ""
    return Measurement(values, note=note)


class _Load(threading.Thread):
    """A closed loop of sends beside another load."""

    def __init__(self, bench: Workbench, broker: RunningBroker, topic: str) -> None:
        super().__init__(daemon=True)
        self._bench, self._broker, self._topic = bench, broker, topic
        self._report: Report | None = None
        self.start()

    def run(self) -> None:
        self._report = self._bench.loader(self._broker).run(
            "send", topic=self._topic, create=True, connections=PRODUCERS, size=BODY_BYTES, seconds=self._bench.seconds
        )

    def rate(self) -> float:
        """Return messages per second. Raises `ToolError` if the load did not run or was refused."""
        self.join()
        if self._report is None or not self._report["ok"]:
            raise ToolError(f"the load beside it: {self._report and (self._report['trouble'], self._report['errors'])}")
        return float(self._report["messages_per_s"])


def tcp_row(bench: Workbench) -> Measurement:
    """Measure a full scan by pulls, all columns to noop, against pulls of the native loader from the same broker."""
    with bench.broker_on("1k") as broker:
        options = {"bootstrap": broker.namesrv, "transport": "tcp"}
        frame = bench.session.read.format("ringmq").options(**options).load()
        rate = bench.messages("1k") / seconds_of(lambda: to_noop(frame))
        pulls = bench.loader(broker).run(
            "pull", topic=TOPICS[0], queues=QUEUES, connections=16, depth=4, count=32, warmup=0.5, seconds=bench.seconds
        )
        native = float(pulls["messages_per_s"])
        note = "" if pulls["ok"] else f"native pulls: {pulls['trouble'] or pulls['errors']}"
        return Measurement({RATIO: rate / native, "ours": rate, "other": native}, ok=bool(pulls["ok"]), note=note)


def stock_row(bench: Workbench) -> Measurement:
    """Measure one log of a running stock broker into Spark, all columns to noop.

    One side reads its files, the other uses the stock lite-pull client in Spark's own process.
    """
    target = StockTarget(bench.folder / "stock", STOCK_SETTINGS, sorted(os.sched_getaffinity(0)))
    try:
        filled = fill_topics(target.port, bench.log_bytes // STOCK_SHARE, BODY_BYTES)
        options = {
            "namesrv": target.namesrv,
            "queues": ",".join(f"{topic}:{queue}" for topic in TOPICS for queue in range(QUEUES)),
            "tasks": str(bench.cores),
            "classpath": f"{stock_classes()}:{stock_classpath()}",
            "logs": str(bench.folder / "spark" / "stock-client"),
            "logback": str(LOGBACK),
        }
        pulled = bench.session.read.format("StockSource").options(**options).load()
        ours = bench.session.read.format("ringmq").option("store", str(target.store)).load()
        found = {"the stock client": pulled.selectExpr("count(value)").collect()[0][0], "ours": ours.count()}
        ours_s, stock_s = seconds_of(lambda: to_noop(ours)), seconds_of(lambda: to_noop(pulled))
    finally:
        target.close()
    wrong = {name: count for name, count in found.items() if count != filled.messages}
    values = {RATIO: stock_s / ours_s, "ours": filled.messages / ours_s, "other": filled.messages / stock_s}
    return Measurement(values, ok=not wrong, note=f"{filled.messages:,} rows, but {wrong}" if wrong else "")


def sink_row(bench: Workbench) -> Measurement:
    """Measure 1 KiB messages from Spark into a broker with ASYNC_FLUSH, against the native loader's batches of 32."""
    with bench.fresh_broker() as broker:
        loader = bench.loader(broker)
        for topic in ("spark_sink", "native_sink"):
            loader.run("create", topic=topic, queues=QUEUES)
        value = f"encode(concat(lpad(cast(id AS string), 16, '0'), repeat('x', {BODY_BYTES - 16})), 'utf-8') AS value"
        rows = bench.session.range(bench.sink_messages).selectExpr(value, "'spark_sink' AS topic")
        writer = rows.write.format("ringmq").mode("append").option("bootstrap", broker.namesrv)
        ours_s = seconds_of(writer.save)
        native = loader.run(
            "batch", topic="native_sink", connections=16, depth=4, size=BODY_BYTES, batch=32,
            messages=bench.sink_messages, settle_ms=SETTLED_MS,
        )  # fmt: skip
        stored = loader.run("verify", topic="spark_sink")["read"]
    ours, other = bench.sink_messages / ours_s, float(native["messages_per_s"])
    note = "" if stored == bench.sink_messages else f"{stored:,} of {bench.sink_messages:,} messages stand in the log"
    return Measurement({RATIO: ours / other, "ours": ours, "other": other}, ok=not note and native["ok"], note=note)


def micro_batch(bench: Workbench) -> Measurement:
    """Measure the time of a micro-batch at 1,000 msg/s in one task: addBatch, and the commit of offsets."""

    def start(frame: Any, checkpoint: str) -> Any:
        return frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()

    with bench.fresh_broker() as broker:
        query = _stream_beside_load(bench, broker, "micro_batch", start)
    batches = _warm([progress for progress in query.recentProgress if progress["numInputRows"]])
    if not batches:
        return Measurement({}, ok=False, note="no micro-batch had rows")
    spent = [_batch_ms(progress["durationMs"]) for progress in batches]
    whole = statistics.median(progress["durationMs"]["triggerExecution"] for progress in batches)
    values = {"ours": statistics.median(spent), "p95": _quantile(spent, P95), "trigger_ms": whole}
    return Measurement({**values, "batches": len(spent)})


def _warm(batches: list[T]) -> list[T]:
    """Return the batches without the first ones, or the last one if there are no more."""
    return batches[FIRST_BATCHES:] or batches[-1:]


def _batch_ms(duration: dict[str, int]) -> int:
    return sum(duration.get(part, 0) for part in ("addBatch", "walCommit", "commitOffsets", "commitBatch"))


def newest_age(bench: Workbench) -> Measurement:
    """Measure the age of a micro-batch's newest message after its rows were read, at 1,000 msg/s in one task."""
    ages: list[float] = []

    def look(frame: Any, number: int) -> None:
        newest = frame.selectExpr("unix_millis(max(timestamp))").collect()[0][0]
        if newest is not None:
            ages.append(time.time() * 1000 - newest)

    def start(frame: Any, checkpoint: str) -> Any:
        return frame.writeStream.foreachBatch(look).option("checkpointLocation", checkpoint).start()

    with bench.fresh_broker() as broker:
        _stream_beside_load(bench, broker, "newest_age", start)
    measured = _warm(ages)
    if not measured:
        return Measurement({}, ok=False, note="no micro-batch had rows")
    return Measurement({"ours": statistics.median(measured), "p95": _quantile(measured, P95), "batches": len(measured)})


def _stream_beside_load(bench: Workbench, broker: RunningBroker, topic: str, start: Callable[[Any, str], Any]) -> Any:
    """Run the query of `start` while the loader sends at the rate, and return it stopped."""
    loader = bench.loader(broker)
    loader.run("send", topic=topic, queues=1, create=True, messages=WARM_UP_MESSAGES)
    options = {"store": str(broker.store), "subscribe": topic, "startingOffsets": "earliest"}
    frame = bench.session.readStream.format("ringmq").options(**options).load()
    query = start(frame, str(bench.folder / "spark" / f"checkpoint-{topic}-{bench.round}"))
    try:
        _wait_for_start(query)
        report = loader.run(
            "send", topic=topic, queues=1, connections=4, depth=16, rate=STREAM_RATE, size=BODY_BYTES,
            seconds=bench.seconds,
        )  # fmt: skip
        if not report["ok"]:
            raise ToolError(f"the producer of the stream: {report['trouble'] or report['errors']}")
        query.processAllAvailable()
    finally:
        query.stop()
    return query


def _wait_for_start(query: Any) -> None:
    """Wait for the end of the query's first batch, which takes Spark seconds."""
    deadline = time.monotonic() + STREAM_START_S
    while not query.recentProgress and query.isActive:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query did not start within {STREAM_START_S:.0f} s: {query.status}")
        time.sleep(POLL_S)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))


def _quantile(values: list[float] | list[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])
