"""The cost of waiting timer messages and of their topics: each point has a broker of its own on an empty store."""

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

from ringmq.loadtest.bench.rows import MIB
from ringmq.loadtest.bench.stored import make_topics, queue_end, runtime_info, store_times, wait_for
from ringmq.loadtest.growth.bench import RECORD_BYTES, Bench, Point, Scenario, busy_percent, need_space
from ringmq.loadtest.growth.scenarios import LOAD
from ringmq.loadtest.load.process_stats import private_bytes
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.measurement import RATE, Measurement, goals
from ringmq.loadtest.measuring.tables import Column
from ringmq.remoting.names import WHEEL_TIMER_TOPIC

TOMORROW_MS = 86_400_000
WAITING = 100_000
"""Messages that wait while the number of topics grows."""
DUE = 200_000
"""Messages that are due in one millisecond, of all topics."""
EVEN: Mapping[str, object] = {**LOAD, "connections": 1, "depth": 1024}
"""A single connection sends to each topic in turn."""
LEAD_S = 8.0
"""Seconds between the begin of their sends and their time."""
TOPICS_READ = 20
TIMEOUT_S = 300.0
SETTLED_PERCENT, SETTLED_S, SETTLE_MAX_S = 5.0, 0.5, 30.0


def timers(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure beside more and more messages of one topic that wait for tomorrow."""
    for value in values:
        yield Point(value, _measure(bench, int(value), 1))


def timer_topics(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure with the same number of waiting messages over more and more topics of one queue."""
    for value in values:
        yield Point(value, _measure(bench, min(WAITING, bench.context.messages_max), int(value)))


def _measure(bench: Bench, waiting: int, topics: int) -> Measurement:
    """Fill a wheel, and measure memory, rest, a start after kill -9, a delivery and sends, in this order.

    Counts if every message is in the wheel before and after the start, and each due one is delivered once.
    """
    need_space(bench, (waiting + 2 * DUE + bench.context.messages_max) * RECORD_BYTES, "timers")
    topic, lanes = bench.context.topic("timers"), {"topics": topics, "queues": 1}
    with contextlib.closing(bench.start()) as target:
        make_topics(target.port, [topic] if topics == 1 else [f"{topic}-{number}" for number in range(topics)])
        filled = bench.context.loader(target.port).run(
            "send",
            topic=topic,
            timer_delay_ms=TOMORROW_MS,
            messages=waiting,
            **lanes,
            **(LOAD if topics == 1 else EVEN),
        )
        faults = _faults(target, filled["acked"], waiting, "sent")
        _wait_until_settled(target)
        values = {
            "private_mib": private_bytes(target.pids())["total"] / MIB,
            "idle_percent": busy_percent(target, bench.context.idle_seconds),
        }
        target.start_again(bench.settings)
        values["start_s"] = target.start_seconds
        faults += _faults(target, filled["acked"], waiting, "after kill -9")
        _wait_until_settled(target)
        delivered, note = _delivered_per_s(bench, target, topic, lanes)
        sent = bench.context.run(
            target, "send", topic=topic, timer_delay_ms=TOMORROW_MS, warmup=bench.context.warmup_s,
            seconds=bench.context.seconds, messages=bench.context.messages_max, **lanes, **LOAD,
        )  # fmt: skip
    values |= {"delivered_per_s": delivered, RATE: float(sent[RATE]), "p99": float(sent["latency_us"]["p99"])}
    note = "; ".join(filter(None, [*faults, note]))
    return Measurement(values, ok=not (note or filled["errors"] or sent["errors"]), note=note, raw=sent)


def _faults(target: RingmqTarget, acked: int, wanted: int, when: str) -> list[str]:
    """Wait until all are in the wheel. Return what is wrong."""
    whole = wait_for(lambda: queue_end(target.port, WHEEL_TIMER_TOPIC) >= acked and not _unread(target), TIMEOUT_S)
    return [] if whole and acked == wanted else [f"{when}: {acked} of {wanted}, {_unread(target)} not in the wheel"]


def _unread(target: RingmqTarget) -> int:
    return int(runtime_info(target.port)["timerOffsetBehind"])


def _wait_until_settled(target: RingmqTarget) -> None:
    """Dispatch, syncs and the counts by topic go on for a while."""
    wait_for(lambda: busy_percent(target, SETTLED_S) < SETTLED_PERCENT, SETTLE_MAX_S)


def _delivered_per_s(bench: Bench, target: RingmqTarget, topic: str, lanes: Mapping[str, int]) -> tuple[float, str]:
    """Return the rate of the last two thirds of a slot, by store times of some topics, and what is wrong."""
    topics = lanes["topics"]
    each = max(3, min(DUE, bench.context.messages_max) // topics)
    deliver_ms = int(time.time() + LEAD_S) * 1000
    loader = bench.context.loader(target.port)
    loader.run("send", topic=topic, deliver_ms=deliver_ms, messages=each * topics, **lanes, **EVEN)
    if time.time() * 1000 > deliver_ms - 1000:
        return 0.0, "the due messages were sent too late for their time"
    names = [topic] if topics == 1 else [f"{topic}-{number}" for number in range(0, topics, -(-topics // TOPICS_READ))]
    wait_for(lambda: all(queue_end(target.port, name) >= each for name in (names[0], names[-1])), TIMEOUT_S)
    back: Mapping[str, int] = {}

    def is_whole() -> bool:
        nonlocal back
        back = loader.run("verify", topic=topic, **lanes)
        return bool(back["read"] >= each * topics)

    wait_for(is_whole, TIMEOUT_S)
    if back["read"] != each * topics or not back["ok"]:
        return 0.0, f"{back['read']} of {each * topics} were delivered"
    ends = (each // 3, each - 1)
    times = [statistics.mean(store_times(target.port, name, 0, at, at + 1)[0] for name in names) for at in ends]
    return topics * (ends[1] - ends[0]) * 1000 / max(1.0, times[1] - times[0]), ""


COLUMNS = (
    Column("accepted/s", RATE),
    Column("of the first", "kept", "{:.2f}"),
    Column("p99 us", "p99"),
    Column("private MiB", "private_mib", "{:.1f}"),
    Column("start s", "start_s", "{:.2f}"),
    Column("idle CPU %", "idle_percent", "{:.1f}"),
    Column("delivered/s", "delivered_per_s"),
)
TIMERS = (
    Scenario(
        "timers",
        "timer messages that wait for tomorrow; 64 connections, 16 in flight, 200 B",
        "waiting",
        (1e3, 1e5, 1e7),
        timers,
        COLUMNS,
        {1e7: goals("kept >=0.9, private_mib <=238, start_s <=2, idle_percent <=1")},
        once=True,
    ),
    Scenario(
        "timer-topics",
        f"topics of {WAITING:,} timer messages that wait for tomorrow; 64 connections, 16 in flight, 200 B",
        "topics",
        (1, 100, 10_000),
        timer_topics,
        COLUMNS,
        once=True,
    ),
)
QUICK: Mapping[str, tuple[float, ...]] = {"timers": (1e3, 2e4), "timer-topics": (1, 20)}
"""Points of a quick run."""
