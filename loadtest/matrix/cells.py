"""One cell of the replication matrix: topics x body size x consumers x policy, on a fresh pair of brokers."""

import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringmq.loadtest.bench.rows import Context
from ringmq.loadtest.load.process_stats import private_bytes
from ringmq.loadtest.load.tools import Report, arguments_of
from ringmq.loadtest.matrix.machine_stats import machine_stats
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement
from ringmq.loadtest.measuring.rounds import Row
from ringmq.loadtest.replication.pairs import ASYNC_MASTER, SYNC_MASTER, Pair, Settings, start_pair
from ringmq.loadtest.replication.rows import messages_of

TOPICS = (1, 8, 16, 64, 128, 256)
BODY_BYTES = (100, 1024, 10_240)
QUEUES = 4  # of each topic
LOG_BYTES_MAX = 1_000_000_000  # that one cell may write on each of the two
CONSUMER_CONNECTIONS = 8
CONSUMER_IDLE_MS = 3000
MIB = 1 << 20


@dataclass(frozen=True)
class Policy:
    """The condition of an acknowledgement."""

    name: str
    settings: Settings


POLICIES = (
    Policy("sync flush + sync replication", {"flushDiskType": "SYNC_FLUSH", **SYNC_MASTER}),
    Policy("async + async", {"flushDiskType": "ASYNC_FLUSH", **ASYNC_MASTER}),
    Policy("sync flush + async replication", {"flushDiskType": "SYNC_FLUSH", **ASYNC_MASTER}),
)


def all_cells() -> list[Row]:
    """Return the 108 cells. A cell's place: body_bytes, consume, policy (a Policy's name), topics."""
    axes = itertools.product(BODY_BYTES, (False, True), POLICIES, TOPICS)
    return [cell_of(body, consume, policy.name, topics) for body, consume, policy, topics in axes]


def cell_of(body_bytes: int, consume: bool, policy: str, topics: int) -> Row:
    """Return the cell at this place."""
    place = {"body_bytes": body_bytes, "consume": consume, "policy": policy, "topics": topics}
    name = f"{size_text(body_bytes)}, {'produce, consume' if consume else 'produce'}, {policy}, {topics} topics"
    return Row(name, name, RATE, "msg/s", (), place=place)


def size_text(body_bytes: int) -> str:
    """Return the size of a body in its unit."""
    return f"{body_bytes} B" if body_bytes < 1024 else f"{body_bytes // 1024} KiB"


def run_cell(context: Context, place: Mapping[str, Any]) -> Measurement:
    """Run 64 connections with 16 sends in flight each on a fresh RingMQ pair. Everything is read back and compared.

    Latencies are of sends, in us; CPU in shares of one; memory is private, of both brokers.
    """
    policy = next(policy for policy in POLICIES if policy.name == place["policy"])
    os.sync()
    with contextlib.closing(start_pair(RINGMQ, context.folder / "matrix", policy.settings, context.cpus)) as pair:
        lanes: dict[str, object] = {"topic": "Matrix", "topics": place["topics"], "queues": QUEUES}
        context.loader(pair.port).run("create", **lanes)
        with _consumer(context, pair, lanes if place["consume"] else None) as consumer:
            before, cpu_before = machine_stats(context.folder), pair.cpu_seconds()
            began = time.monotonic()
            sent = _send(context, pair, place["body_bytes"], lanes)
            cpu, seconds = pair.cpu_seconds(), time.monotonic() - began
            machine = before.until(machine_stats(context.folder))
        memory = private_bytes(pair.pids())["total"] / MIB
        read = _consumed(consumer)
        checked = context.loader(pair.port).run("verify", **lanes)
        pair.wait_in_sync()
        notes = _faults(sent, checked, read, pair.same_logs())
    values = {"messages_per_s": float(sent["messages_per_s"]), **machine, "memory_mib": memory}
    values |= {name: float(sent["latency_us"][name]) for name in ("mean", "p50", "p99", "p99_9", "max")}
    values |= {f"{name}_cpu": (cpu[name] - cpu_before[name]) / seconds for name in cpu}
    values["loader_cpu"] = float(sent["loader_cpu"]["share"])
    if read:
        values["consumed_per_s"] = read["read"] / max(read["read_s"], 1e-9)
    return Measurement(values, not notes, "; ".join(notes))


def _send(context: Context, pair: Pair, body_bytes: int, lanes: Mapping[str, object]) -> Report:
    return context.loader(pair.port).run(
        "send",
        connections=64,
        depth=16,
        size=body_bytes,
        warmup=context.warmup_s,
        seconds=context.seconds,
        messages=messages_of(LOG_BYTES_MAX, body_bytes),
        **lanes,
    )


@contextlib.contextmanager
def _consumer(
    context: Context, pair: Pair, lanes: Mapping[str, object] | None
) -> Iterator["subprocess.Popen[str] | None"]:
    """Yield a consumer of everything, or None. The consumer is killed if the block fails."""
    if lanes is None:
        yield None
        return
    options = {"port": pair.port, "connections": CONSUMER_CONNECTIONS, "idle_ms": CONSUMER_IDLE_MS, **lanes}
    words = [str(context.tools.load), "consume", *arguments_of(options)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    except BaseException:
        process.kill()
        process.communicate()
        raise


def _consumed(consumer: "subprocess.Popen[str] | None") -> Report | None:
    if consumer is None:
        return None
    report: Report = json.loads(consumer.communicate(timeout=300)[0])
    return report


def _faults(sent: Report, checked: Report, read: Report | None, same_logs: bool) -> list[str]:
    """Return the faults: refused sends, messages that are lost, doubled, changed or out of order."""
    found = []
    if not sent["ok"]:
        found.append(f"sends: {sent['errors']} {sent['remark']} {sent['trouble']}".strip())
    for name, report in (("read back", checked), ("consumed", read)):
        if report is not None and not (report["ok"] and report["read"] == sent["acked"]):
            found.append(f"{name}: {report['read']} of {sent['acked']}, {report['wrong_offset']} out of order")
    if read is not None and read["read_crc_sum"] != checked["read_crc_sum"]:
        found.append("what was consumed differs from what was read back")
    if not same_logs:
        found.append("the slave's log differs")
    return found
