"""The rows of pops that wait: the time from a send to its receipts, and what waiting pops cost others."""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial

from ringmq.loadtest.bench import pops
from ringmq.loadtest.bench.rows import Context, Run
from ringmq.loadtest.bench.stored import polls_waiting, wait_for
from ringmq.loadtest.load.background import BackgroundLoad, running
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.load.tools import Report, ToolError
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement

SETTINGS: Mapping[str, str] = {**pops.SETTINGS, "popPollingSize": "20000"}
"""Up to 20,001 pops of one group and topic may wait."""
STEADY: Mapping[str, object] = {"rate": 20_000, "connections": 64, "depth": 1}
PULLS: Mapping[str, object] = {"pulls": True, "commit": True, "queues": 64}
"""As many pullers as poppers, and each puller needs a queue."""
POPS: Mapping[str, object] = {"queues": pops.QUEUES}
FEW: Mapping[str, object] = {"rate": 10, "queues": pops.QUEUES}
ONE_GROUP: Mapping[str, object] = {"connections": 100, "depth": 100}
MANY_GROUPS: Mapping[str, object] = {"groups": 1000, "connections": 1000, "depth": 10}
OTHERS = {"topics": 100, "connections": 100, "depth": 10}
HELD_S = 3600.0
"""Longer than any run, which ends the pops that wait beside it."""
WAITING_S = 60.0
LEAD_S = 2.0
"""Until all pops wait."""
BATCH: Mapping[str, object] = {"count": 32, "connections": 4, "depth": 4}
KINDS: Mapping[str, Mapping[str, object]] = {
    "batch": BATCH,
    "acks": {**BATCH, "single_acks": True},
    "one": {"count": 1, "single_acks": True, "connections": 4, "depth": 16},
}


def waited(context: Context, target: Target, row: str, lead_s: float, **options: object) -> Report:
    """Send at a rate to a new topic, beside pops or pulls that wait for the messages."""
    topic = context.topic(row)
    return context.run(
        target, "wait", topic=topic, group=topic, create=True, broker_name=pops.BROKER_NAME,
        size=pops.BODY_BYTES, warmup=lead_s, seconds=context.seconds, **options,
    )  # fmt: skip


def fault_of(report: Report) -> str:
    """The faults of a run of pops or pulls that wait. Empty: each group has received each message once."""
    if report["ok"]:
        return ""
    names = ("sent", "received", "acked", "unknown", "twice", "wrong_crc", "bad_answers", "unanswered", "errors")
    return f"{ {name: report[name] for name in names} } {report['remark'][:100]} {report['trouble']}".strip()


def late_row(context: Context, target: Target) -> Measurement:
    """Compare the times from send to receipt of waiting pops with those of waiting pulls, under the same load.

    Each of both runs once before, so that workers are there, and a JIT compiler is warm.
    """
    values: dict[str, float] = {}
    faults = []
    for name, options in (("pull_", PULLS), ("", POPS)):
        waited(context, target, "poll_first", 0.0, **STEADY, **options)
        report = waited(context, target, "poll_late", context.warmup_s, **STEADY, **options)
        late = {f"{name}{percent}_ms": report["late_us"][percent] / 1e3 for percent in ("p50", "p99", "p99_9", "max")}
        cpu_us = 1e6 * sum(report["server_cpu"].values()) * report["window_s"] / max(report["late_us"]["count"], 1)
        values |= {**late, f"{name}cpu_us": cpu_us, "loader_cpu": float(report["loader_cpu"]["share"])}
        faults.append(fault_of(report))
    values["to_pulls"] = values["p99_ms"] / (values["pull_p99_ms"] or 1.0)
    return Measurement(values, ok=not any(faults), note="; ".join(filter(None, faults)), raw=report)


def wake_row(row: str, waiting: Mapping[str, object]) -> Run:
    """Return a run of single messages while pops wait: the time until each group has received a message."""

    def run(context: Context, target: Target) -> Measurement:
        report = waited(context, target, row, LEAD_S, **FEW, **waiting)
        values = {f"{percent}_ms": report["whole_us"][percent] / 1e3 for percent in ("p50", "p99", "max")}
        return Measurement(values, ok=bool(report["ok"]), note=fault_of(report), raw=report)

    return run


def beside_row(context: Context, target: Target) -> Measurement:
    """Pop at full speed beside 1,000 pops of another group that wait at other topics, and without them.

    `KIND_cpu_ratio` is of the broker's processor time a message.
    """
    assert target.name == RINGMQ
    values: dict[str, float] = {}
    faults = []
    for number, (kind, options) in enumerate(KINDS.items()):
        run = pops.pop_row(f"poll_{kind}", **options)
        rates, cpu_us = {}, {}
        for has_others in (False, True) if number % 2 else (True, False):
            measured, fault = _beside_others(context, target, run) if has_others else (run(context, target), "")
            rates[has_others] = measured.values.get(RATE, 0.0)
            cpu_us[has_others] = measured.values.get("cpu_us", 0.0)
            faults += [fault, "" if measured.ok else measured.note]
        values |= {f"{kind}_rate": rates[True], f"{kind}_ratio": rates[True] / (rates[False] or 1.0)}
        values[f"{kind}_cpu_ratio"] = cpu_us[True] / (cpu_us[False] or 1.0)
    return Measurement(values, ok=not any(faults), note="; ".join(filter(None, faults)))


def _beside_others(context: Context, target: Target, run: Run) -> tuple[Measurement, str]:
    """The run's measurement, and the faults of the pops that wait beside it."""
    with holding(context, target, context.topic("poll_others"), **OTHERS) as others:
        measured = run(context, target)
        return measured, others.end()


class Held:
    """Pops that wait at topics to which nothing is sent."""

    def __init__(self, load: BackgroundLoad) -> None:
        self._load = load
        self.frame_bytes = 0.0
        """Of a request, once they have ended."""

    def end(self) -> str:
        """End them. Returns their faults, "" for none."""
        report = self._load.end()
        self.frame_bytes = report["bytes_out"] / max(report["frames_sent"], 1)
        return fault_of(report)


@contextlib.contextmanager
def holding(
    context: Context, target: Target, topic: str, *, topics: int, connections: int, depth: int, **options: object
) -> Iterator[Held]:
    """Have pops of a group of their own wait, `depth` at each connection, and yield as soon as all of them do.

    Raises ToolError if they do not.
    """
    polls = connections * depth
    names = [topic] if topics == 1 else [f"{topic}-{number}" for number in range(topics)]
    with running(
        context.tools, target.port, "wait", topic=topic, group=topic, create=True, broker_name=pops.BROKER_NAME,
        rate=0, seconds=HELD_S, pin=context.loader_cpu, queues=pops.QUEUES, topics=topics, connections=connections,
        depth=depth, **options,
    ) as load:  # fmt: skip
        for name in names:
            if not wait_for(partial(_are_waiting, target.port, name, topic, polls // topics), WAITING_S):
                raise ToolError(f"not all of {polls} pops wait, {name} has {polls_waiting(target.port, name, topic)}")
        yield Held(load)


def _are_waiting(port: int, topic: str, group: str, polls: int) -> bool:
    return polls_waiting(port, topic, group) == polls
