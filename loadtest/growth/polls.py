"""The cost of pops that wait: each point has a broker of its own on an empty store."""

from collections.abc import Iterator, Mapping, Sequence

from ringmq.loadtest.bench.pops import QUEUES
from ringmq.loadtest.bench.rows import MIB, send_row
from ringmq.loadtest.bench.stored import wait_for
from ringmq.loadtest.bench.waiting_pops import LEAD_S, SETTINGS, fault_of, holding, waited
from ringmq.loadtest.growth.bench import (
    RECORD_BYTES,
    Bench,
    Point,
    Scenario,
    busy_percent,
    need_files,
    need_space,
)
from ringmq.loadtest.growth.scenarios import LOAD
from ringmq.loadtest.load.process_stats import private_bytes, resident_anonymous_bytes
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.measurement import RATE, Goal, Measurement, goals
from ringmq.loadtest.measuring.tables import Column

TOPICS = 1000
CONNECTIONS = 100
"""Of poppers of one topic, at most."""
POLL_OF_IDLE = 1.5
"""A pop waits so many times the length of a measured rest: 15 s by default, as those of stock's clients. In a rest each
one is asked anew once."""
MESSAGES_PER_S = 100
WEIGHED = 900
"""So many pops are needed to tell what one takes from what processes take by themselves."""
TOPICS_WEIGHED = 100
"""The same of topics with their windows."""
HOLDERS = ("pop", "read-")
"""Beginnings of the names of the workers that keep pops."""
SETTLED_PERCENT, SETTLED_S, SETTLE_MAX_S = 8.0, 3.0, 12.0


def pollers(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure with more and more waiting pops of one topic and group."""
    for value in values:
        yield Point(value, _measure(bench, int(value), 1))


def polled_topics(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure with the same numbers of them, over as many topics as there are pops, at most 1,000."""
    for value in values:
        yield Point(value, _measure(bench, int(value), min(int(value), TOPICS)))


def _measure(bench: Bench, polls: int, topics: int) -> Measurement:
    """Let pops wait, and measure memory, rest, sends of others, then the time from sends to receipts.

    The first pop of each topic makes its windows, which count for themselves. Counts if no pop was refused, and each
    message was received once.
    """
    need_space(bench, 2 * bench.context.messages_max * RECORD_BYTES, "waiting pops")
    connections = max(topics, min(polls, CONNECTIONS))
    need_files(connections)
    context = bench.context
    shape = {"topics": topics, "connections": connections, "depth": polls // connections}
    poll_s = POLL_OF_IDLE * context.idle_seconds
    with bench.broker(**SETTINGS) as target:
        first = waited(context, target, "first", 0.0, rate=MESSAGES_PER_S, queues=QUEUES)  # starts the worker
        rest = _rest_percent(target, poll_s)
        held_bytes, topic = [_held_bytes(target)], context.topic("polls")
        with holding(context, target, topic, topics=topics, connections=topics, depth=1) as held:  # makes the windows
            held_bytes.append(_held_bytes(target))
            faults = [held.end()]
        with holding(context, target, topic, poll_ms=int(1000 * poll_s), **shape) as held:
            idle = _rest_percent(target, poll_s)
            held_bytes.append(_held_bytes(target))
            private = private_bytes(target.pids())["total"]
            sent = send_row("beside", "send", queues=QUEUES, **LOAD)(context, target)
            faults.append(held.end())
        woken = waited(
            context, target, "wake", LEAD_S, rate=MESSAGES_PER_S, queues=QUEUES, **shape
        )  # fmt: skip
    values = {
        **sent.values, "private_mib": private / MIB, "idle_percent": idle, "polls_percent": idle - rest,
        "late_p50": woken["late_us"]["p50"], "late_p99": woken["late_us"]["p99"],
    }  # fmt: skip
    if topics >= TOPICS_WEIGHED:
        values["topic_bytes"] = (held_bytes[1] - held_bytes[0]) / topics
    if polls - topics >= WEIGHED:
        values["poller_bytes"] = (held_bytes[2] - held_bytes[1]) / (polls - topics) - held.frame_bytes
    faults += [sent.note, fault_of(first), fault_of(woken)]
    return Measurement(values, ok=sent.ok and not any(faults), note="; ".join(filter(None, faults)), raw=woken)


def _rest_percent(target: RingmqTarget, seconds: float) -> float:
    """Processor time of the broker at rest, in percent of one CPU, once it has settled."""
    wait_for(lambda: busy_percent(target, SETTLED_S) < SETTLED_PERCENT, SETTLE_MAX_S)
    return busy_percent(target, seconds)


def _held_bytes(target: RingmqTarget) -> int:
    """Private memory of the workers that keep pops."""
    return sum(resident_anonymous_bytes(pid) for pid, name in target.pids().items() if name.startswith(HOLDERS))


COLUMNS = (
    Column("sent/s", RATE),
    Column("of the first", "kept", "{:.2f}"),
    Column("p99 us", "p99"),
    Column("private MiB", "private_mib", "{:.1f}"),
    Column("B a pop beside its frame", "poller_bytes"),
    Column("B a topic of 8 queues", "topic_bytes"),
    Column("idle CPU %", "idle_percent", "{:.1f}"),
    Column("of it for pops", "polls_percent", "{:.1f}"),
    Column("send to receipt, p50 us", "late_p50"),
    Column("p99 us", "late_p99"),
)
GOALS: Mapping[float, tuple[Goal, ...]] = {10_000: goals("poller_bytes <=1024, polls_percent <=2")}
VALUES = (1, 10, 100, 1000, 10_000)
WAITING = (
    Scenario(
        "pollers",
        "waiting pops of one topic and group; then sends of others, 64 connections, 16 in flight, 200 B",
        "pops",
        VALUES,
        pollers,
        COLUMNS,
        GOALS,
        once=True,
    ),
    Scenario(
        "polled-topics",
        f"waiting pops, each of a topic of its own up to {TOPICS:,} topics; then sends of others as above",
        "pops",
        VALUES,
        polled_topics,
        COLUMNS,
        GOALS,
        once=True,
    ),
)
QUICK: Mapping[str, tuple[float, ...]] = {"pollers": (1, 1000), "polled-topics": (1, 20)}
"""Points of a quick run."""
