"""Rows of the Spark bench on a store without a writer: against Parquet, batch against stream, memory of tasks."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ringmq.loadtest.load.process_stats import resident_anonymous_bytes
from ringmq.loadtest.measuring.measurement import Measurement
from ringmq.loadtest.spark.workbench import SIZES, Workbench, seconds_of, side_by_side, to_noop

MIB = 1 << 20
SAMPLE_S = 0.02
RATIO = "ratio"
JVM = "ringmq-jvm"


def faster(ours_s: float, other_s: float, **more: float) -> Measurement:
    """Return two times as a ratio of speeds."""
    return Measurement({RATIO: other_s / ours_s, "ours": ours_s, "other": other_s, **more})


def counted(measurement: Measurement, found: Mapping[str, int], expected: int) -> Measurement:
    """Return the measurement, which counts only if all sides counted `expected` rows."""
    wrong = {name: count for name, count in found.items() if count != expected}
    note = "".join(f"{name} counted {count:,} of {expected:,} rows; " for name, count in wrong.items())
    return Measurement(measurement.values, ok=not wrong, note=note.removesuffix("; "))


def scan_row(size: str, source: str = "ringmq") -> Callable[[Workbench], Measurement]:
    """Return a run that writes all columns of all rows to Spark's noop sink."""

    def run(bench: Workbench) -> Measurement:
        ours, parquet = bench.frame(size, source=source), bench.parquet(size)
        times = side_by_side(bench, lambda: to_noop(ours), lambda: to_noop(parquet))
        return faster(*times, rows_per_s=bench.messages(size) / times[0])

    return run


def count_row(size: str, source: str = "ringmq") -> Callable[[Workbench], Measurement]:
    """Return a run of count(), of the narrowest column if the source needs one."""

    def run(bench: Workbench) -> Measurement:
        columns = ("partition",) if source == "ringmq" else ()
        ours, parquet = bench.frame(size, *columns, source=source), bench.parquet(size, *columns)
        found: dict[str, int] = {}
        times = side_by_side(
            bench, lambda: found.update(ours=ours.count()), lambda: found.update(parquet=parquet.count())
        )
        return counted(faster(*times), found, bench.messages(size))

    return run


def group_row(size: str, source: str = "ringmq") -> Callable[[Workbench], Measurement]:
    """Return a run that counts rows per topic and queue."""

    def run(bench: Workbench) -> Measurement:
        columns = ("topic", "partition")
        ours = bench.frame(size, *(columns if source == "ringmq" else ()), source=source)
        groups = [frame.groupBy(*columns).count() for frame in (ours, bench.parquet(size, *columns))]
        found: dict[str, list[tuple[str, int, int]]] = {}
        times = side_by_side(
            bench,
            lambda: found.update(ours=sorted(map(tuple, groups[0].collect()))),
            lambda: found.update(parquet=sorted(map(tuple, groups[1].collect()))),
        )
        sums = {name: sum(row[2] for row in rows) for name, rows in found.items()}
        measurement = counted(faster(*times), sums, bench.messages(size))
        same = found["ours"] == found["parquet"]
        note = measurement.note if same else f"{measurement.note} groups differ".strip()
        return Measurement(measurement.values, ok=measurement.ok and same, note=note)

    return run


def available_now_row(rows_per_batch: int | None) -> Callable[[Workbench], Measurement]:
    """Return a run of the whole store as a stream up to the log's current end, against the batch scan."""

    def run(bench: Workbench) -> Measurement:
        options = {"store": str(bench.store("1k")), "startingOffsets": "earliest"}
        if rows_per_batch:
            options["maxOffsetsPerTrigger"] = str(rows_per_batch)
        batch = bench.frame("1k")
        rows: list[int] = []

        def stream() -> None:
            checkpoint = bench.folder / "spark" / f"checkpoint-{bench.round}-{rows_per_batch}"
            frame = bench.session.readStream.format("ringmq").options(**options).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            rows.append(sum(int(progress["numInputRows"]) for progress in query.recentProgress))

        times = side_by_side(bench, stream, lambda: to_noop(batch))
        return counted(faster(*times), {"the stream": rows[0]}, bench.messages("1k"))

    return run


def task_memory(bench: Workbench) -> Measurement:
    """Measure the largest anonymous memory of any Python worker during full scans of both sizes."""
    peaks: dict[int, int] = {}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            for pid in bench.spark_pids()[1:]:
                peaks[pid] = max(peaks.get(pid, 0), resident_anonymous_bytes(pid))

    for size in SIZES:
        bench.store(size)
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        took = sum(seconds_of(lambda size=size: to_noop(bench.frame(size))) for size in SIZES)  # type: ignore[misc]
    finally:
        ended.set()
        sampler.join()
    workers = {pid: peak for pid, peak in peaks.items() if _is_worker(pid)}
    note = "" if workers else "no Python worker was seen"
    return Measurement({"ours": max(workers.values(), default=0) / MIB, "seconds": took}, ok=bool(workers), note=note)


def _is_worker(pid: int) -> bool:
    try:
        return b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
