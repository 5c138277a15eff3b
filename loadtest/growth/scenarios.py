"""The short scenarios: each point has a broker of its own on an empty store."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ringmq.loadtest.growth.bench import (
    COST_COLUMNS,
    RATE_COLUMNS,
    RECORD_BYTES,
    Bench,
    Point,
    Scenario,
    background,
    faults,
    need_files,
    need_space,
    queue_kib,
    sends,
)
from ringmq.loadtest.load.process_stats import private_bytes
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.measurement import Measurement, goals
from ringmq.loadtest.measuring.tables import Column

LOAD = {"connections": 64, "depth": 16, "size": 200}
ACTIVE_MAX = 1000
QUEUES_OF_A_TOPIC = 8
CONSUMER_CONNECTIONS = 8
SLOW_PULLS_PER_S = 20  # of one slow consumer, 32 messages each
CONSUMER_IDLE_MS = 2000


def topics(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Load 64 connections with 16 in flight over more and more topics of 4 queues, whose files exist already."""
    need_space(bench, bench.context.messages_max * RECORD_BYTES, "topics")
    for value in values:
        topic, lanes = bench.context.topic("topics"), {"topics": int(value), "queues": 4}
        with bench.broker() as target:
            _one_each(bench, target, topic, lanes)
            yield Point(value, sends(bench, target, "topics", topic=topic, **lanes, **LOAD))


def _one_each(bench: Bench, target: RingmqTarget, topic: str, lanes: Mapping[str, int]) -> int:
    """Make the topics and send one message to each queue, so that all files exist. Return the acknowledged sends."""
    loader = bench.context.loader(target.port)
    loader.run("create", topic=topic, **lanes)
    total = lanes["topics"] * lanes["queues"]
    sent = loader.run("send", topic=topic, messages=total, connections=1, depth=16, check=True, check_keys=1, **lanes)
    return int(sent["acked"])


def connections(bench: Bench, values: Sequence[float], depth: int) -> Iterator[Point]:
    """Load more and more connections, of which at most 1,000 send and the others are idle."""
    need_space(bench, bench.context.messages_max * RECORD_BYTES, "connections")
    need_files(int(max(values)))
    for value in values:
        active = min(int(value), ACTIVE_MAX)
        load = {**LOAD, "connections": active, "idle": int(value) - active, "depth": depth}
        with bench.broker() as target:
            yield Point(value, sends(bench, target, "connections", queues=8, **load))


def queues(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure more and more queues, 8 to a topic: disk space, sends over all of them, start after kill -9."""
    need_space(bench, bench.context.messages_max * RECORD_BYTES, "queues")
    for value in values:
        count = max(1, int(value) // QUEUES_OF_A_TOPIC)
        each = int(value) // count
        target = bench.start()
        try:
            target, measured = _queues_point(bench, target, {"topics": count, "queues": each})
        finally:
            with contextlib.suppress(ProcessLookupError):
                target.close()
        yield Point(value, measured)


def _queues_point(bench: Bench, target: RingmqTarget, lanes: Mapping[str, int]) -> tuple[RingmqTarget, Measurement]:
    topic = bench.context.topic("queues")
    total = lanes["topics"] * lanes["queues"]
    sends(bench, target, "before", queues=8, **{**LOAD, "messages": 20_000})  # the load's own memory is in use now
    before = private_bytes(target.pids())["total"]
    one_each = _one_each(bench, target, topic, lanes)
    os.sync()  # blocks are given to a file when it is written back
    grown = private_bytes(target.pids())["total"] - before
    files_kib, folders_kib = queue_kib(bench.store, topic, total)
    measured = sends(bench, target, "queues", topic=topic, **lanes, **LOAD)
    acked = one_each + measured.raw["acked"]
    target.kill()
    again = bench.start(keep=True)
    back = bench.quick_check(again, topic, **lanes)
    whole = bool(back["ok"]) and back["read"] == acked
    values = {
        **measured.values,
        "queue_kib": grown / 1024 / total,
        "queue_file_kib": files_kib,
        "queue_folder_kib": folders_kib,
        "start_s": again.start_seconds,
    }
    note = measured.note if whole else f"after kill -9 {back['read']} of {acked} were there"
    return again, replace(measured, values=values, ok=measured.ok and whole, note=note)


def groups(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Send while 1 to 16 groups read everything and commit their offsets."""
    need_space(bench, bench.context.messages_max * RECORD_BYTES, "groups")
    for value in values:
        topic, lanes = bench.context.topic("groups"), {"queues": 8}
        with bench.broker() as target:
            bench.context.loader(target.port).run("create", topic=topic, **lanes)
            reading = {"groups": int(value), "commit": True, "connections": CONSUMER_CONNECTIONS, **lanes}
            with background(bench, target, "consume", topic=topic, idle_ms=CONSUMER_IDLE_MS, **reading) as readers:
                measured = sends(bench, target, "groups", topic=topic, **lanes, **LOAD)
                read = readers.report()
        wrong = faults(dict(measured.raw), read, int(value))
        values_now = {**measured.values, "consumed_per_s": read["read"] / max(read["read_s"], 1e-9)}
        note = "; ".join(filter(None, [measured.note, *wrong]))
        yield Point(value, replace(measured, values=values_now, ok=measured.ok and not wrong, note=note))


def slow_consumers(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Send beside consumers that fall further and further behind: 20 pulls a second each, from the beginning on."""
    need_space(bench, bench.context.messages_max * RECORD_BYTES, "slow consumers")
    for value in values:
        topic, lanes = bench.context.topic("slow"), {"queues": 8}
        with bench.broker() as target, contextlib.ExitStack() as stack:
            bench.context.loader(target.port).run("create", topic=topic, **lanes)
            readers = None
            if value:
                reading = {"groups": int(value), "connections": int(value), "rate": SLOW_PULLS_PER_S * value}
                seconds = bench.context.warmup_s + bench.context.seconds
                readers = stack.enter_context(
                    background(bench, target, "consume", topic=topic, seconds=seconds, **reading, **lanes)
                )
            measured = sends(bench, target, "slow", topic=topic, **lanes, **LOAD)
            read = readers.report() if readers else None
        found = dict(measured.values)
        note, ok = measured.note, measured.ok
        if read is not None:
            found["consumed_per_s"] = read["read"] / max(read["read_s"], 1e-9)
            found["behind"] = max(0.0, measured.raw["acked"] - read["read"] / value)
            if not read["ok"]:
                note, ok = f"{note} consumers: {read['errors']} {read['remark']} {read['trouble']}".strip(), False
        yield Point(value, replace(measured, values=found, ok=ok, note=note))


CONSUMED = Column("consumed/s", "consumed_per_s")
CONNECTION_GOALS = {
    10_000.0: goals("kept >=0.8, private_mib <=400"),
}
SHORT: tuple[Scenario, ...] = (
    Scenario(
        "topics",
        "64 connections, 16 in flight, 200 B, over topics of 4 queues",
        "topics",
        (1, 4, 16, 64, 256),
        topics,
        (*RATE_COLUMNS, *COST_COLUMNS),
        {256.0: goals("kept >=0.85")},
    ),
    Scenario(
        "queues",
        "64 connections, 16 in flight, 200 B, over topics of 8 queues",
        "queues",
        (8, 64, 1000, 10_000),
        queues,
        (
            *RATE_COLUMNS,
            *COST_COLUMNS,
            Column("memory KiB a queue", "queue_kib", "{:.2f}"),
            Column("file KiB a queue", "queue_file_kib", "{:.1f}"),
            Column("folder KiB a queue", "queue_folder_kib", "{:.1f}"),
            Column("start s", "start_s", "{:.2f}"),
        ),
        {10_000.0: goals("queue_kib <=4, queue_file_kib <=4, start_s <=5")},
    ),
    Scenario(
        "connections",
        "connections of which at most 1,000 send, 16 in flight each, 200 B",
        "connections",
        (64, 1000, 4000, 10_000),
        lambda bench, values: connections(bench, values, 16),
        (*RATE_COLUMNS, *COST_COLUMNS),
        CONNECTION_GOALS,
    ),
    Scenario(
        "connections-1",
        "connections of which at most 1,000 send, 1 in flight each, 200 B",
        "connections",
        (64, 1000, 4000, 10_000),
        lambda bench, values: connections(bench, values, 1),
        (*RATE_COLUMNS, *COST_COLUMNS),
        CONNECTION_GOALS,
    ),
    Scenario(
        "groups",
        "64 connections, 16 in flight, 200 B, while groups read everything",
        "groups",
        (1, 2, 4, 8, 16),
        groups,
        (*RATE_COLUMNS, CONSUMED, *COST_COLUMNS),
    ),
    Scenario(
        "slow-consumers",
        "64 connections, 16 in flight, 200 B, beside consumers of 20 pulls a second",
        "slow consumers",
        (0, 1, 4, 16, 64),
        slow_consumers,
        (*RATE_COLUMNS, CONSUMED, Column("behind, each", "behind"), *COST_COLUMNS),
    ),
)
