"""Exactly once under kills: a stream into files whose driver is killed at random, and what its sink has in the end.

    python -m tests.spark_bridge.stream_drill --kills 50 --seed 7

starts a broker, sends messages all the time, and runs `query` (below) in a process group of its own, which is killed
(SIGKILL, everything) at a random moment behind its first batch, and started again from its checkpoint, over and over.
Some faults hit a Python worker alone. Then every acknowledged message has to be in the sink's metadata log once.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from ringmq.client import compose_message
from ringmq.client.blocking import Producer
from ringmq.loadtest.load.running import wait_ended
from tests.conformance import servers

ROOT = Path(__file__).parents[2]
TOPIC = "Drilled"
BATCH_ROWS = 400
LAST_BATCH_ROWS = 20_000
SEND_STEP_S = 0.2
SEND_STEP_MESSAGES = 100
FAULT_AFTER_MAX_S = 1.0
STEP_TIMEOUT_S = 300.0
STARTS_MAX = 5
WORKER_SHARE = 0.25


# ---- the query, in a process of its own ----


def query(store: Path, work: Path, *, to_the_end: bool) -> None:
    """Copy the topic to Parquet files until killed, or with `to_the_end` up to the log's end."""
    from pyspark_ringmq.session import local_session

    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=work))
    spark = local_session("stream drill", scratch)
    source = spark.readStream.format("ringmq").option("store", str(store)).option("subscribe", TOPIC)
    rows_max = LAST_BATCH_ROWS if to_the_end else BATCH_ROWS
    rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rows_max)).load()
    sink = rows.select("partition", "offset", "value").writeStream.format("parquet").option("path", str(work / "out"))
    trigger = {"availableNow": True} if to_the_end else {"processingTime": "50 milliseconds"}
    sink.option("checkpointLocation", str(work / "checkpoint")).trigger(**trigger).start().awaitTermination()
    spark.stop()


class QueryProcess:
    """`query` in its own process group."""

    def __init__(self, store: Path, work: Path, *, to_the_end: bool = False) -> None:
        self._log = (work / "query.log").open("ab")
        command = [sys.executable, "-m", "tests.spark_bridge.stream_drill", "--query", str(store), str(work)]
        self.process = subprocess.Popen(
            [*command, *(["--to-the-end"] if to_the_end else [])],
            cwd=ROOT, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def everyone(self) -> list[psutil.Process]:
        """The driver, its JVM and the Python workers."""
        try:
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL to all at once."""
        everyone = self.everyone()
        for one in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self.process.wait()
        wait_ended(everyone)
        self._log.close()

    def kill_a_worker(self, rng: random.Random) -> bool:
        """SIGKILL to one Python worker; False when there is none now."""
        daemons = {one.pid for one in self.everyone() if "pyspark.daemon" in _command(one)}
        workers = sorted(
            (one for one in self.everyone() if "pyspark.daemon" in _command(one) and _parent(one) in daemons),
            key=lambda one: one.pid,
        )
        if not workers:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(workers).send_signal(signal.SIGKILL)
        return True


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


# ---- what came out ----


def sink_rows(out: Path) -> list[tuple[int, int, bytes]]:
    """(queue, offset, body) of every row in the files that the sink's metadata log names."""
    log = out / "_spark_metadata"
    names = {path.name for path in log.iterdir() if not path.name.startswith(".")}
    compacted = max((int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")), default=-1)
    entries = [f"{compacted}.compact"] if compacted >= 0 else []
    entries += [name for name in names if name.isdigit() and int(name) > compacted]
    rows: list[tuple[int, int, bytes]] = []
    for name in entries:
        for line in (log / name).read_text().splitlines()[1:]:  # the first line is the format's version
            path = Path(json.loads(line)["path"].removeprefix("file://"))
            columns = pq.read_table(path).select(["partition", "offset", "value"]).to_pydict()
            rows += zip(columns["partition"], columns["offset"], columns["value"], strict=True)
    return rows


def newest_batch(work: Path, log: str) -> int:
    """The number of the newest batch in one of the checkpoint's logs (offsets, commits), -1 before the first."""
    names = [path.name for path in (work / "checkpoint" / log).glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def batches_done(work: Path) -> int:
    """The number of the last batch that is committed, -1 before the first."""
    return newest_batch(work, "commits")


@dataclass
class Report:
    """What a drill did and found; `faults` empty means exactly once."""

    kills: int = 0
    worker_kills: int = 0
    unfinished: int = 0  # kills that hit a batch which was planned and not committed
    rows: int = 0
    batches: int = 0
    faults: list[str] = field(default_factory=list)


class SteadySender:
    """Sends numbered messages in the background; `sent` are those that the broker has acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self.sent = {b"first"}
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        with Producer(self._namesrv) as producer:
            number = 0
            while not self._stop.wait(SEND_STEP_S):
                bodies = [b"%d" % n for n in range(number, number + SEND_STEP_MESSAGES)]
                producer.send_all(compose_message(TOPIC, body) for body in bodies)
                self.sent.update(bodies)
                number += SEND_STEP_MESSAGES

    def __enter__(self) -> "SteadySender":
        with Producer(self._namesrv) as producer:
            producer.send(compose_message(TOPIC, b"first"))  # makes the topic
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# ---- the drill ----


def run_drill(work: Path, kills: int, seed: int, say: Callable[[str], None] = print) -> Report:
    """Kill the query `kills` times, let it end, look at the sink."""
    rng, report = random.Random(seed), Report()
    server = servers.RingmqServer(work / "server", {"mappedFileSizeCommitLog": 1 << 20})
    try:
        with SteadySender(server.namesrv) as sender:
            while report.kills < kills:
                _inject_fault(server.store, work, rng, report)
                say(f"kill {report.kills}: {batches_done(work) + 1} batches done, {report}")
        if not _run_to_the_end(server.store, work):
            report.faults.append(
                f"the last run does not end: {(work / 'query.log').read_text(errors='replace')[-4000:]}"
            )
        _check(sink_rows(work / "out"), sender.sent, report)
    finally:
        server.close()
    report.batches = batches_done(work) + 1
    return report


def _inject_fault(store: Path, work: Path, rng: random.Random, report: Report) -> None:
    """Start the query, wait until it gets on, and kill it or a worker of it at a random moment after that."""
    running = _start_and_get_on(store, work)
    try:
        time.sleep(rng.uniform(0, FAULT_AFTER_MAX_S))  # span: the moment of the fault
        if rng.random() < WORKER_SHARE and running.kill_a_worker(rng):
            report.worker_kills += 1
            time.sleep(rng.uniform(0, FAULT_AFTER_MAX_S))  # span: it goes on, or ends with an error
    finally:
        running.kill()
    report.kills += 1
    report.unfinished += newest_batch(work, "offsets") > newest_batch(work, "commits")


def _start_and_get_on(store: Path, work: Path) -> QueryProcess:
    """A query that has committed a batch. One that ends before that is started again: Spark gives its planning worker
    ten seconds to start, which a busy machine may exceed."""
    before = batches_done(work)
    deadline = time.monotonic() + STEP_TIMEOUT_S
    for _ in range(STARTS_MAX):
        running = QueryProcess(store, work)
        while running.process.poll() is None and time.monotonic() < deadline:
            if batches_done(work) > before:
                return running
            time.sleep(0.02)  # poll
        running.kill()
    log = (work / "query.log").read_text(errors="replace")
    raise AssertionError(f"the query got nowhere in {STEP_TIMEOUT_S} s: {log[-4000:]}")


def _run_to_the_end(store: Path, work: Path) -> bool:
    """Whether a last run reached the log's end, started again where it had to be."""
    for _ in range(STARTS_MAX):
        last = QueryProcess(store, work, to_the_end=True)
        try:
            if last.process.wait(STEP_TIMEOUT_S) == 0:
                return True
        finally:
            last.kill()
    return False


def _check(rows: list[tuple[int, int, bytes]], sent: set[bytes], report: Report) -> None:
    report.rows = len(rows)
    places = Counter((queue, offset) for queue, offset, _ in rows)
    bodies = Counter(body for _, _, body in rows)
    report.faults += [f"queue {queue} offset {offset}: {n} times" for (queue, offset), n in places.items() if n > 1]
    report.faults += [f"message {body!r} is missing" for body in sorted(sent - bodies.keys())]
    ends: dict[int, int] = {}
    for queue, offset in places:
        ends[queue] = max(ends.get(queue, 0), offset + 1)
    gaps = sum(ends.values()) - len(places)
    if gaps:
        report.faults.append(f"{gaps} offsets are missing")


def main() -> int:
    """Parse the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--query", nargs=2, type=Path, metavar=("STORE", "WORK"), help=argparse.SUPPRESS)
    parser.add_argument("--to-the-end", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        query(*options.query, to_the_end=options.to_the_end)
        return 0
    with tempfile.TemporaryDirectory(prefix="ringmq-stream-drill-") as work:
        report = run_drill(Path(work), options.kills, options.seed)
    print(report)
    return 1 if report.faults else 0


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main())
