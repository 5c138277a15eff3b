"""The two long scenarios on one broker: a growing backlog, and a soak."""

import contextlib
import math
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ringmq.loadtest.growth.bench import (
    COST_COLUMNS,
    LAST,
    RATE_COLUMNS,
    Bench,
    GrowthError,
    MemoryWatch,
    Point,
    Scenario,
    background,
    cpu_us,
    faults,
    need_space,
    queue_kib,
    sends,
)
from ringmq.loadtest.growth.scenarios import CONSUMER_CONNECTIONS, LOAD
from ringmq.loadtest.load.background import BackgroundLoad
from ringmq.loadtest.load.targets import OTHER, RingmqTarget
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.measurement import Measurement, goals
from ringmq.loadtest.measuring.tables import Column

BACKLOG_BODY_BYTES = 1024
BACKLOG_RECORD_BYTES = 1290  # of such a message in log, queue and index, about
BACKLOG_QUEUES = 16
FILLED_MS = 60_000  # at most until what was sent stands in its queues, too
SOAK_INTERVALS = 60
SOAK_DISK_BYTES = 20 << 30  # that the log may take before its oldest files go: a minute or two of a fast broker
SOAK_IDLE_MS = 10_000  # at most
SOAK_QUEUES, SOAK_DEPTH = 32, 256  # a pull under way brings 32 messages of a queue: with few of them a reader waits
PULL_COUNT = 32
BEST_S = 20.0  # long enough for the disk to have a say
DISK_RATIO_MAX = 84  # above 85 % files go by force


def backlog(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure sends, reads of the oldest messages and a start after kill -9, with more and more GB of log."""
    need_space(bench, int(1.1e9 * max(values)) + bench.context.messages_max * 460 * len(values), "backlog")
    target = bench.start()
    topic = bench.context.topic("backlog")
    try:
        held = 0
        for value in values:
            wanted = max(1, int(value * 1e9) // BACKLOG_RECORD_BYTES - held)
            filled = _fill(bench, target, topic, wanted)
            held += filled["acked"]
            os.sync()  # the next point measures sends beside a long log, not its way to the disk
            target, measured = _backlog_point(bench, target, topic)
            if not filled["ok"]:
                measured = replace(measured, ok=False, note=f"filling: {_what_is_wrong(filled)}")
            yield Point(value, measured)
    finally:
        with contextlib.suppress(ProcessLookupError):
            target.close()


def _fill(bench: Bench, target: RingmqTarget, topic: str, messages: int) -> Report:
    return bench.context.loader(target.port).run(
        "batch",
        topic=topic,
        queues=BACKLOG_QUEUES,
        create=True,
        connections=8,
        depth=2,
        size=BACKLOG_BODY_BYTES,
        messages=messages,
        check=True,
        settle_ms=FILLED_MS,
    )


def _what_is_wrong(filled: Report) -> str:
    check = filled["check"]
    late = f"{check['in_queues']} of {check['acked']} in queues after {check['queue_ms']:.0f} ms"
    told = filled["trouble"] or check["trouble"] or f"{late}, index after {check['index_ms']:.0f} ms"
    return f"{filled['errors']} {told}"


def _backlog_point(bench: Bench, target: RingmqTarget, topic: str) -> tuple[RingmqTarget, Measurement]:
    pull = bench.context.loader(target.port).run(
        "pull", topic=topic, queues=BACKLOG_QUEUES, connections=16, depth=4, count=PULL_COUNT,
        seconds=bench.context.seconds,
    )  # fmt: skip
    measured = sends(bench, target, "live", queues=8, **LOAD)
    files_kib, _ = queue_kib(bench.store, topic, BACKLOG_QUEUES)
    target.kill()
    again = bench.start(keep=True)
    values = {
        **measured.values,
        "pulled_per_s": float(pull["messages_per_s"]),
        "pull_p99": float(pull["latency_us"]["p99"]),
        "queue_file_kib": files_kib,
        "start_s": again.start_seconds,
    }
    failures = ("trouble", "errors", "bad_answers", "unanswered", "disconnects")
    whole = not any(pull[kind] for kind in failures)
    note = measured.note if whole else f"pulls: {pull['errors']} {pull['trouble']}"
    if whole and pull["short_answers"]:  # RocketMQ's rule for what is more than 40 % of the memory behind
        note = f"{pull['short_answers']} of {pull['answers']} pulls gave less than {PULL_COUNT}; {note}".rstrip("; ")
    return again, replace(measured, values=values, ok=measured.ok and whole, note=note)


def backlog_values(folder_free_bytes: int, wanted_gb: float) -> tuple[float, ...]:
    """Return 1, 2, 4, ... GB up to the wanted size. 0 means 50 GB, or three quarters of the disk if that is less."""
    top = wanted_gb or min(50.0, math.floor(0.75 * folder_free_bytes / 1e9))
    steps = [float(1 << n) for n in range(16) if 1 << n < top]
    return (*steps, top)


def soak(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Send half of the best rate for a long time, consume and compare everything, and yield a point per interval.

    Retention bounds the log: old files go when the disk is fuller than at the begin by SOAK_DISK_BYTES. Raises
    GrowthError as soon as the consumer gives up, since later points mean nothing.
    """
    need_space(bench, SOAK_DISK_BYTES, "soak")
    usage = shutil.disk_usage(bench.context.folder)
    topic, lanes = bench.context.topic("soak"), {"queues": SOAK_QUEUES}
    with bench.broker(**soak_settings(usage.used, usage.free)) as target:
        bench.context.loader(target.port).run("create", topic=topic, **lanes)
        rate = bench.soak_rate or _best_rate(bench, target) / 2
        bench.say(f"  soak: {rate:,.0f} messages/s for {bench.soak_s:,.0f} s")
        every_s = bench.soak_s / len(values)
        sending = {"seconds": bench.soak_s, "interval": every_s, "rate": rate, "depth": SOAK_DEPTH}
        before = target.pids()
        with (
            _soak_consumer(bench, target, topic, _timeout_ms(bench.soak_s), commit=True) as reader,
            MemoryWatch(target.pids, min(10.0, every_s / 4)) as memory,
            _soak_sender(bench, target, topic, watch=",".join(map(str, before)), **sending) as sender,
        ):
            sent, read = _both(sender, reader)
        yield from soak_points(sent, read, memory.samples, values, ended(before, target.pids()))


def ended(before: Mapping[int, str], after: Mapping[int, str]) -> list[str]:
    """Return earlier workers that have ended, even if replacements run."""
    gone = [(name, pid) for pid, name in before.items() if name != OTHER and after.get(pid) != name]
    return [f"{name} (process {pid}) ended during the soak" for name, pid in sorted(gone)]


def soak_settings(used_bytes: int, free_bytes: int) -> dict[str, str | int | bool]:
    """Return settings by which old files go one by one once the disk holds SOAK_DISK_BYTES more than now.

    Raises GrowthError if the disk is too full. As in retention, a disk is full if users have no free space: the file
    system's reserve for root does not count.
    """
    whole = used_bytes + free_bytes
    percent = math.ceil(100 * (used_bytes + SOAK_DISK_BYTES) / whole)
    if percent > DISK_RATIO_MAX:
        raise GrowthError(
            f"a soak needs a disk that is at most {DISK_RATIO_MAX} % full when it holds {SOAK_DISK_BYTES / 1e9:.0f} GB "
            f"more, this one would be {percent} % full: make room"
        )
    # by force, since an hour is the youngest age that lets a file go otherwise
    return {
        "diskMaxUsedSpaceRatio": max(10, percent),
        "diskSpaceCleanForciblyRatio": max(30, percent),
        "deleteFileBatchMax": 2,
    }


def _best_rate(bench: Bench, target: RingmqTarget) -> float:
    """Return the messages a second that a closed loop sends and a consumer beside it reads, to the last one."""
    topic, seconds = bench.context.topic("best"), min(BEST_S, bench.soak_s)
    bench.context.loader(target.port).run("create", topic=topic, queues=SOAK_QUEUES)
    with (
        _soak_consumer(bench, target, topic, _timeout_ms(seconds)) as reader,
        _soak_sender(bench, target, topic, seconds=seconds, depth=LOAD["depth"]) as sender,
    ):
        sent, read = _both(sender, reader)
    if wrong := faults(sent, read):
        raise GrowthError(f"the best rate of the soak is not known: {'; '.join(wrong)}")
    return float(read["read"] / max(read["read_s"], 1e-9))


def _timeout_ms(seconds: float) -> float:
    """Return the time that a consumer waits without a message: a stall of the machine must not look like the end."""
    return max(1000.0, min(SOAK_IDLE_MS, 500 * seconds))


def _soak_sender(
    bench: Bench, target: RingmqTarget, topic: str, **options: object
) -> contextlib.AbstractContextManager[BackgroundLoad]:
    load = {**LOAD, "topic": topic, "queues": SOAK_QUEUES, "pin": bench.context.loader_cpu, **options}
    return background(bench, target, "send", **load)


def _soak_consumer(
    bench: Bench, target: RingmqTarget, topic: str, idle_ms: float, **options: object
) -> contextlib.AbstractContextManager[BackgroundLoad]:
    reading = {"topic": topic, "queues": SOAK_QUEUES, "connections": CONSUMER_CONNECTIONS, "idle_ms": idle_ms}
    return background(bench, target, "consume", **reading, **options)


def _both(sender: BackgroundLoad, reader: BackgroundLoad) -> tuple[Report, Report]:
    """Return both reports. Raises GrowthError if the reader ends first."""
    while not sender.ended(within_s=1.0):
        if reader.ended(within_s=0.1):
            read = reader.report()
            raise GrowthError(
                f"a consumer ended after {read['read']:,} messages while more were sent: "
                f"{read['errors']} {read['remark']} {read['trouble']}".strip()
            )
    return sender.report(), reader.report()


def soak_points(
    sent: Report,
    read: Report,
    samples: Sequence[tuple[float, float]],
    values: Sequence[float],
    ended_workers: Sequence[str] = (),
) -> Iterator[Point]:
    """Yield a point per interval of the send report. The last one also has the result of the whole.

    `grown_mib` and `p99_9_ratio` compare the medians of the last and the first third. Nothing counts if a worker has
    ended: its replacement begins with little memory.
    """
    wrong = [*faults(sent, read), *ended_workers]
    stretches = sent["intervals"][: len(values)]
    found = []
    for value, stretch in zip(values, stretches, strict=False):
        at_s, end_s = stretch["at_s"], stretch["at_s"] + stretch["seconds"]
        memory = [mib for when, mib in samples if at_s <= when <= end_s]
        found.append(
            {
                "minutes": value,
                "messages_per_s": stretch["messages"] / max(stretch["seconds"], 1e-9),
                **{name: float(stretch[name]) for name in ("p50", "p99", "p99_9", "max")},
                **({"private_mib": max(memory)} if memory else {}),
            }
        )
    third = max(1, len(found) // 3)
    first, last = found[:third], found[-third:]
    thirds = {"first": first, "last": last}
    unseen = [name for name, points in thirds.items() if not any("private_mib" in point for point in points)]
    wrong += [f"no sample of memory in the {name} third" for name in unseen]
    if not unseen:
        found[-1]["grown_mib"] = _median(last, "private_mib") - _median(first, "private_mib")
    found[-1] |= {
        "p99_9_ratio": _median(last, "p99_9") / max(_median(first, "p99_9"), 1e-9),
        "errors": float(sum(sent["errors"].values()) + sent["unanswered"] + sent["disconnects"] + sent["bad_answers"]),
        "lost": float(abs(sent["acked"] - read["read"])),
        "cpu_us": cpu_us(sent),
    }
    ok = bool(sent["ok"]) and not wrong
    places = [*values[: len(found) - 1], values[-1]]  # the sender's last intervals may be one
    for value, at in zip(places, found, strict=True):
        yield Point(value, Measurement(at, ok=ok, note="; ".join(wrong), raw=sent if at is found[-1] else {}))


def _median(points: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(point[name] for point in points if name in point)


def soak_values(seconds: float) -> tuple[float, ...]:
    """Return the ends of the intervals, in minutes."""
    return tuple(round(seconds / 60 * number / SOAK_INTERVALS, 4) for number in range(1, SOAK_INTERVALS + 1))


BACKLOG = Scenario(
    "backlog",
    "64 connections, 16 in flight, 200 B, and pulls of the oldest messages, behind a log of 1 KiB messages",
    "GB of log",
    (),
    backlog,
    (
        *RATE_COLUMNS,
        Column("pulled/s", "pulled_per_s"),
        Column("pull p99 us", "pull_p99"),
        *COST_COLUMNS,
        Column("file KiB a queue", "queue_file_kib"),
        Column("start s", "start_s", "{:.2f}"),
    ),
    once=True,
)
SOAK = Scenario(
    "soak",
    "64 connections at half of the best rate, 200 B, everything consumed",
    "minutes",
    (),
    soak,
    (*RATE_COLUMNS, Column("max us", "max"), *COST_COLUMNS),
    {LAST: goals("grown_mib <=8, p99_9_ratio <=1.25, errors <=0, lost <=0")},
    once=True,
)
