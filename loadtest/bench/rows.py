"""The rows of the bench: one small function each, which measures one thing on one broker."""

import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.process_stats import cpu_seconds, private_bytes
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.load.tools import Loader, Report, Tools, build_tools, run_json
from ringmq.loadtest.measuring.command import Options
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, STOCK, Measurement, failed
from ringmq.loadtest.measuring.rounds import Row
from ringmq.loadtest.stock import compile_java, java_command
from ringmq.remoting.names import SCHEDULE_TOPIC

JAVA_SOURCE = Path(__file__).with_name("java") / "ProducerBench.java"
JAVA_HEAP_MB = 512
LATENCIES = ("p50", "p99", "p99_9", "p99_99", "max")
SETTLED_MS = 1000
MIB = 1 << 20


@dataclass
class Context:
    """The shared parts of all rows: tools, folder, CPUs and durations."""

    tools: Tools
    folder: Path
    cpus: list[int]
    loader_cpu: int | None
    seconds: float = 5.0
    warmup_s: float = 0.5
    messages_max: int = 5_000_000  # bounds what one row may write to the disk
    memory_messages: int = 10_000_000
    delayed_messages: int = 200_000  # due at once
    waiting_messages: int = 1_000_000  # beside plain traffic
    open_halves: int = 100_000  # beside plain traffic
    timer_messages: int = 1_000_000  # of one slot, or of the row of lateness
    waiting_timers: int = 10_000_000
    restart_bytes: int = 4 << 30
    link_bytes: int = 1_000_000_000  # of log sent over a link
    catch_up_bytes: int = 2_000_000_000  # of log that an empty slave gets
    stall_s: float = 60.0
    stock_warmup_s: float = 20.0
    idle_connections: int = 1000
    idle_seconds: float = 10.0
    check_keys: int = 64
    settle_ms: int = SETTLED_MS  # the most time until queues and index are complete
    open_rate: float | None = None  # messages/s; None: half of stock's best rate so far
    send_back_messages: int = 1_000_000  # at most
    best_rate: dict[str, float] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def topic(self, row: str) -> str:
        """Return a fresh topic name."""
        return f"bench_{row.replace('-', '_')}_{next(self.numbers)}"

    def circumstances(self) -> Report:
        """Return the CPUs of a run."""
        return {"server_cpus": self.cpus, "loader_cpu": self.loader_cpu}

    def loader(self, port: int) -> Loader:
        """Return the load generator for the server on `port`."""
        return Loader(self.tools, port, self.loader_cpu)

    def run(self, target: Target, command: str, **options: object) -> Report:
        """Run the load generator. `server_cpu` of the report has the CPU share of each process.

        A worker that the load starts counts with its whole processor time.
        """
        names = target.pids()
        watch = ",".join(map(str, names))
        report = self.loader(target.port).run(command, watch=watch, **options)
        used_s = {names[int(pid)]: used["user_s"] + used["system_s"] for pid, used in report["watched"].items()}
        for pid, name in target.pids().items():
            if pid not in names:
                used_s[name] = used_s.get(name, 0.0) + cpu_seconds([pid])
        window_s = report["window_s"] or 1.0
        report["server_cpu"] = {name: round(used / window_s, 3) for name, used in used_s.items()}
        return report


@contextmanager
def context_of(options: Options) -> Iterator[Context]:
    """Yield the context of a run with results in `options.folder`, and remove its stores.

    A field has the value of the option of its name. By default there are all CPUs of this process, and the last one for
    the loader.
    """
    available = sorted(os.sched_getaffinity(0))
    found = {field.name: getattr(options, field.name, None) for field in fields(Context)}
    given = {"cpus": available, "loader_cpu": available[-1]}
    given |= {name: value for name, value in found.items() if value not in (None, [])}
    context = Context(**{**given, "tools": build_tools(), "folder": options.folder.resolve() / "stores"})
    context.folder.mkdir(parents=True, exist_ok=True)
    try:
        yield context
    finally:
        shutil.rmtree(context.folder, ignore_errors=True)


Run = Callable[[Context, Target], Measurement]
Alone = Callable[[Context, str], Measurement]
BROKER, REPLICATION = "broker", "replication"

FIRST_MESSAGES, FIRST_S = 64, 2.0
"""Of the run that starts a worker, at most."""


@dataclass(frozen=True)
class BenchRow(Row):
    """One line of the table.

    `run` gets a broker with these settings (and a slave), `alone` starts its own processes.
    """

    run: Run | None
    systems: tuple[str, ...] = (STOCK, RINGMQ)
    settings: Mapping[str, str] = field(default_factory=dict)
    ceiling: Mapping[str, object] | None = None  # loader options to run against the ceiling
    group: str = BROKER
    slaves: int = 0  # 1: `run` gets a Pair
    alone: Alone | None = None


def latencies(report: Report) -> dict[str, float]:
    """Return the latencies of a report, in us."""
    return {name: float(report["latency_us"][name]) for name in LATENCIES if name in report["latency_us"]}


def refusals(report: Report) -> str:
    """Return the codes of answers that refused a request, with the last remark. Empty without such answers."""
    return f"answers by code {report['errors']}: {report['remark'][:100]}" if report["errors"] else ""


def first_messages(context: Context, target: Target, command: str = "send", **options: object) -> str:
    """Send a few messages, which start the worker that serves them. Returns the broker's refusals, "" for none."""
    shape = {"connections": 1, "depth": 1, "size": 200, "messages": FIRST_MESSAGES, "seconds": FIRST_S}
    return refusals(context.run(target, command, topic=context.topic("first"), create=True, **shape, **options))


def found_again(check: Report) -> bool:
    """True if everything acknowledged is in queue and index and reads back equal, at any time."""
    same = check["read"] == check["acked"] and check["read_crc_sum"] == check["crc_sum"]
    whole = check["queues_wrong"] == check["wrong_crc"] == check["wrong_offset"] == 0
    return bool(same and whole and check["keys_found"] == check["keys_asked"] and not check["trouble"])


def send_measurement(report: Report, *, in_time: bool) -> Measurement:
    """Return the measurement of a send row.

    It counts if a send was acknowledged after the warm-up and everything acknowledged was found again, with `in_time`
    within `settle_ms`.
    """
    check = report["check"]
    notes = list(filter(None, [refusals(report), report["trouble"]]))
    if not check["ok"]:
        late = f"queue {check['queue_ms']:.0f} ms, index {check['index_ms']:.0f} ms"
        notes.append(f"not all found again: {check['trouble'] or late}")
    values = {RATE: float(report[RATE]), **latencies(report)}
    values["loader_cpu"] = float(report["loader_cpu"]["share"])
    if not values[RATE]:
        notes.append("nothing was acknowledged after the warm-up: the messages were sent by then, or it stood still")
    ok = not report["trouble"] and report["bad_answers"] == 0 and values[RATE] > 0
    ok = ok and (bool(check["ok"]) if in_time else found_again(check))
    return Measurement(values, ok=ok, note="; ".join(notes), raw=report)


def send_row(row: str, command: str, **options: object) -> Run:
    """Return a closed loop of sends with everything read back."""

    def run(context: Context, target: Target) -> Measurement:
        report = context.run(
            target,
            command,
            create=True,
            check=True,
            read_back=True,
            check_keys=context.check_keys,
            settle_ms=context.settle_ms,
            warmup=context.warmup_s,
            seconds=context.seconds,
            **{"topic": context.topic(row), "messages": context.messages_max, **options},
        )
        measurement = send_measurement(report, in_time=target.name == RINGMQ)
        best = max(context.best_rate.get(target.name, 0.0), measurement.values["messages_per_s"])
        if command == "send" and measurement.ok:
            context.best_rate[target.name] = best
        return measurement

    return run


def transaction_row(context: Context, target: Target) -> Measurement:
    """Send half messages, and commit each on its connection. A pair counts when the commit is answered.

    A short run before starts the worker for transactions, so that the row counts its processor time.
    """
    if refused := first_messages(context, target, "transaction"):
        return failed(refused)
    pairs = send_row("transaction", "transaction", connections=64, depth=16, size=200)(context, target)
    rate = pairs.values[RATE]
    if not rate:
        return pairs
    used = pairs.raw["server_cpu"]
    if target.name == RINGMQ and "transactions" not in used:
        return replace(pairs, ok=False, note="the processor time of the worker for transactions is not known")
    cpu_us = 1e6 * sum(used.values()) / rate
    return replace(pairs, values={**pairs.values, "cpu_us_per_pair": cpu_us})


def send_back_row(context: Context, target: Target) -> Measurement:
    """Send each message of a topic back once, on a broker with one delay level and nothing that waits.

    Counts if as many copies wait in time, and read back equal.
    """
    topic, loader = context.topic("send_back"), context.loader(target.port)
    fill = loader.run(
        "batch", topic=topic, create=True, size=200, connections=8, depth=2, messages=context.send_back_messages
    )
    report = context.run(
        target, "send-back", topic=topic, group=topic, connections=64, depth=16, warmup=context.warmup_s,
        seconds=context.seconds,
    )  # fmt: skip
    deadline = time.monotonic() + context.settle_ms / 1000
    wanted = report["acked"], report["acked_crc_sum"]
    while True:
        in_time = time.monotonic() <= deadline
        back = loader.run("verify", topic=SCHEDULE_TOPIC, queues=1)
        found = back["read"], back["read_crc_sum"]
        if found == wanted or not in_time:
            break
    rate = float(report[RATE])
    note = "" if found == wanted else f"{found[0]} of {wanted[0]} copies are in the queue in time"
    values = {RATE: rate, **latencies(report), "loader_cpu": float(report["loader_cpu"]["share"])}
    note = f"{note} {refusals(report)}".strip()
    ok = bool(fill["ok"] and back["ok"]) and found == wanted and rate > 0
    ok = ok and not report["trouble"] and report["bad_answers"] == 0
    return Measurement(values, ok=ok, note=note or report["trouble"], raw=report)


def _filled(context: Context, target: Target, topic: str, **options: object) -> Measurement | None:
    """Fill a topic with 1 KiB messages and read them back once. None: all were found again."""
    fill = context.loader(target.port).run(
        "batch",
        topic=topic,
        create=True,
        check=True,
        read_back=True,
        size=1024,
        connections=8,
        depth=2,
        messages=min(context.messages_max, 512_000),
        **options,
    )
    if found_again(fill["check"]):
        return None
    return Measurement({}, ok=False, note=f"filling the topic: {fill['trouble'] or fill['errors']}", raw=fill)


def _pulled(context: Context, target: Target, topic: str, **options: object) -> Measurement:
    report = context.run(
        target,
        "pull",
        topic=topic,
        connections=16,
        depth=4,
        count=32,
        warmup=context.warmup_s,
        seconds=context.seconds,
        **options,
    )
    note = "" if report["ok"] else f"errors {report['errors']}, short answers {report['short_answers']}"
    values = {"messages_per_s": float(report["messages_per_s"]), **latencies(report)}
    return Measurement(values, ok=bool(report["ok"]), note=note, raw=report)


def pull_row(context: Context, target: Target) -> Measurement:
    """Fill a topic with 1 KiB messages, read them back once, then pull at full speed."""
    topic = context.topic("pull")
    return _filled(context, target, topic) or _pulled(context, target, topic)


TAGS = 10
WANTED_TAG = "Tag7"


def filtered_pull_row(context: Context, target: Target) -> Measurement:
    """Pull one message of ten by SQL92, and the same messages by their tag. `to_tag` is the ratio of the two rates."""
    topic = context.topic("pull_sql")
    if not_filled := _filled(context, target, topic, batch=2 * TAGS, tags=TAGS):
        return not_filled
    by_tag = _pulled(context, target, topic, tag=WANTED_TAG)
    by_sql = _pulled(context, target, topic, expression=f"TAGS = '{WANTED_TAG}'")
    values = {**by_sql.values, "tag_messages_per_s": by_tag.values[RATE]}
    values["to_tag"] = by_sql.values[RATE] / (by_tag.values[RATE] or 1.0)
    return replace(by_sql, values=values, ok=by_tag.ok and by_sql.ok, note=by_sql.note or by_tag.note)


def open_loop_row(context: Context, target: Target) -> Measurement:
    """Send at a fixed rate, half of stock's best. Latency counts from the intended send time."""
    rate = context.open_rate or context.best_rate.get(STOCK, 0.0) / 2
    if rate <= 0:
        return Measurement({}, ok=False, note="stock's best rate is not known: measure it too, or give --open-rate")
    report = context.run(
        target,
        "send",
        topic=context.topic("open_loop"),
        create=True,
        check=True,
        read_back=True,
        settle_ms=context.settle_ms,
        connections=64,
        depth=256,
        rate=rate,
        warmup=context.warmup_s,
        seconds=2 * context.seconds,
    )
    measurement = send_measurement(report, in_time=target.name == RINGMQ)
    values = {**measurement.values, "rate": rate, "loader_lag_p99_9": float(report["lag_us"]["p99_9"])}
    return Measurement(values, ok=measurement.ok, note=measurement.note, raw=report)


def java_row(context: Context, target: Target) -> Measurement:
    """Run the stock Java producer with 64 threads of synchronous sends."""
    topic = context.topic("java")
    loader = context.loader(target.port)
    loader.run("create", topic=topic)
    classes = compile_java([JAVA_SOURCE], "producer")
    home = context.folder / "java-producer"
    arguments = (target.namesrv, topic, "64", "1024", str(6 * context.warmup_s), str(2 * context.seconds))
    command = java_command("ProducerBench", *arguments, home=home, heap_mb=JAVA_HEAP_MB, classpath=[classes])
    report = run_json(command, timeout_s=120 + 4 * context.seconds)
    back = loader.run("verify", topic=topic)
    values = {"messages_per_s": float(report["messages_per_s"])}
    values |= {name: float(value) for name, value in report["latency_us"].items()}
    # A send that failed for the client may still be stored, so there may be more but not fewer.
    ok = bool(back["ok"]) and 0 <= back["read"] - report["all_messages"] <= report["failed"]
    note = f"{report['failed']} sends failed" if report["failed"] else ""
    return Measurement(values, ok=ok, note=note, raw=report)


def memory_row(context: Context, target: Target) -> Measurement:
    """Measure the private memory of all processes after ten million messages in batches."""
    report = context.loader(target.port).run(
        "batch", topic=context.topic("memory"), create=True, connections=16, depth=4, messages=context.memory_messages
    )
    used = private_bytes(target.pids())
    values = {f"{name}_mib": size / MIB for name, size in used.items()}
    note = report["trouble"] or (f"of them refused: {report['errors']}" if report["errors"] else "")
    return Measurement(values, ok=report["acked"] >= 0.9 * context.memory_messages, note=note, raw=report)


def idle_row(context: Context, target: Target) -> Measurement:
    """Measure the processor time of all processes beside a thousand idle connections."""
    result: list[Report] = []
    seconds = context.idle_seconds + 2
    connections = context.idle_connections

    def hold() -> None:
        result.append(context.loader(target.port).run("idle", connections=connections, seconds=seconds))

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(1.5)  # all connected and whatever they caused is done
    pids = target.pids()
    begin, used = time.monotonic(), cpu_seconds(pids)
    time.sleep(context.idle_seconds)
    percent = 100 * (cpu_seconds(pids) - used) / (time.monotonic() - begin)
    holder.join()
    ok = bool(result) and bool(result[0]["ok"])
    return Measurement({"cpu_percent": percent}, ok=ok, note="" if ok else "not all connections stayed open")


def sdk_row(mode: str) -> Run:
    """Return a run of the Python SDK in one process, 1 KiB bodies."""

    def run(context: Context, target: Target) -> Measurement:
        topic = context.topic(f"sdk_{mode}")
        loader = context.loader(target.port)
        loader.run("create", topic=topic)
        report = _sdk_report(context, target, topic, mode)
        back = loader.run("verify", topic=topic)
        same = back["read"] == report["all_messages"] and back["read_crc_sum"] == report["crc_sum"]
        values = {"messages_per_s": float(report["messages_per_s"])}
        note = "" if same else f"{report['all_messages']} sent, {back['read']} read back"
        return Measurement(values, ok=bool(back["ok"]) and same, note=note, raw=report)

    return run


SDK_POP_METRICS = ("to_round_trips", "to_handlers", "cpu_us", "cpu_to_sleeps")


def sdk_pop_row(mode: str) -> Run:
    """Return a run of the SDK's consumer by POP in one process, over a topic of 1 KiB messages."""

    def run(context: Context, target: Target) -> Measurement:
        topic = context.topic(f"sdk_{mode.replace('-', '_')}")
        if not_filled := _filled(context, target, topic):
            return not_filled
        report = _sdk_report(context, target, topic, mode)
        values = {name: float(report[name]) for name in (RATE, *SDK_POP_METRICS) if name in report}
        faults = {"messages came twice": report["duplicates"], "warnings of the SDK": report.get("warnings", 0)}
        note = ", ".join(f"{count} {what}" for what, count in faults.items() if count)
        return Measurement(values, ok=not note, note=note, raw=report)

    return run


def _sdk_report(context: Context, target: Target, topic: str, mode: str) -> Report:
    words = [sys.executable, "-m", "ringmq.loadtest.bench.sdk", "--namesrv", target.namesrv, "--topic", topic]
    words += ["--mode", mode, "--seconds", str(context.seconds)]
    return run_json(words, timeout_s=60 + 4 * context.seconds)


def ceiling_measurement(report: Mapping[str, Any]) -> Measurement:
    """Return a run against the ceiling, which has no queues to check."""
    ok = not report["trouble"] and not report["errors"] and report["bad_answers"] == 0
    values = {RATE: float(report["messages_per_s"]), **latencies(dict(report))}
    values["loader_cpu"] = float(report["loader_cpu"]["share"])
    return Measurement(values, ok=ok, note=str(report["trouble"]), raw=report)
