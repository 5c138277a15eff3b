"""The rows of delay levels: sends, delivery at once, lateness, and plain traffic beside waiting messages."""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from ringmq.loadtest.bench.rows import MIB, Context, first_messages
from ringmq.loadtest.bench.sleep_loop import SleepLoop, percentile
from ringmq.loadtest.bench.stored import queue_end, store_times, wait_for
from ringmq.loadtest.load.process_stats import busy_seconds, private_bytes
from ringmq.loadtest.load.targets import RingmqTarget, StockTarget, Target
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.comparison import CPU_US
from ringmq.loadtest.measuring.measurement import RATE, Measurement, failed
from ringmq.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC

LEVELS = {"messageDelayLevel": "1h 5s"}
HOUR, SHORT = 1, 2
SHORT_MS = 5000
BESIDE = {**LEVELS, "transactionTimeOut": "3600000"}
"""The settings of the row beside waiting messages. No open half is checked while it runs."""
DUE_NOW = {"messageDelayLevel": "1s"}
SHAPE: Mapping[str, object] = {"connections": 64, "depth": 16, "size": 200}
LATENESS_PER_S, LATENESS_S = 20_000, 4.0
ROUNDS = 5
PULLED = 200_000
"""Messages of the topic that is pulled beside waiting ones."""
TIMEOUT_S = 120.0


# -- sends -------------------------------------------------------------------------------------------------


def delayed_sends(context: Context, target: Target) -> Measurement:
    """Send plain, delayed and plain messages. Counts if each delayed record is in its queue within `settle_ms`."""
    if refused := first_messages(context, target, delay_level=HOUR):
        return failed(refused)
    before = plain_rate(context, target)
    waiting = queue_end(target.port, SCHEDULE_TOPIC, HOUR - 1)
    topic = context.topic("delayed")
    report = context.run(
        target, "send", topic=topic, create=True, delay_level=HOUR, warmup=context.warmup_s, seconds=context.seconds,
        messages=context.messages_max, **SHAPE,
    )  # fmt: skip
    wanted = waiting + report["acked"]
    in_time = wait_for(lambda: queue_end(target.port, SCHEDULE_TOPIC, HOUR - 1) >= wanted, context.settle_ms / 1000)
    rate = float(report[RATE])
    values = {RATE: rate, "to_plain": rate / statistics.mean((before, plain_rate(context, target)))}
    found = queue_end(target.port, SCHEDULE_TOPIC, HOUR - 1)
    note = "" if in_time and found == wanted else f"{found - waiting} of {report['acked']} are in the queue in time"
    return Measurement(values, ok=not note and not report["errors"] and rate > 0, note=note, raw=report)


def plain_rate(context: Context, target: Target) -> float:
    """Send plain messages. Returns their rate."""
    topic = context.topic("plain")
    report = context.run(
        target, "send", topic=topic, create=True, warmup=context.warmup_s, seconds=context.seconds,
        messages=context.messages_max, **SHAPE,
    )  # fmt: skip
    return float(report[RATE])


# -- delivery at once --------------------------------------------------------------------------------------


def due_at_once(context: Context, system: str) -> Measurement:
    """Deliver messages that are all due when the broker starts, because their delay was shortened.

    The rate is that of the last two thirds, by store times: a virtual machine is warm by then. Counts if every message
    is delivered once.
    """
    kind = StockTarget if system == StockTarget.name else RingmqTarget
    with closing(kind(context.folder / f"due-{system}", LEVELS, context.cpus)) as target:
        if refused := first_messages(context, target, delay_level=HOUR):
            return failed(refused)
        topic = context.topic("due")
        report = context.loader(target.port).run(
            "send", topic=topic, queues=1, create=True, connections=16, depth=4, size=200, delay_level=HOUR,
            messages=context.delayed_messages * 3 // 2,
        )  # fmt: skip
        wait_for(lambda: queue_end(target.port, SCHEDULE_TOPIC, HOUR - 1) >= report["acked"], TIMEOUT_S)
        target.restart(DUE_NOW)
        return delivered_rate(context, target, topic, report)


def delivered_rate(context: Context, target: Target, topic: str, report: Report) -> Measurement:
    """Wait until the messages of a report are in the one queue of their topic. Counts if each is there once.

    The rate is that of the last two thirds. `first_stored_ms` of the raw values is the store time of the first one.
    """
    sent = int(report["acked"])
    cpu_us = wait_delivered(target, topic, sent)
    back = context.loader(target.port).run("verify", topic=topic, queues=1)
    times = [store_times(target.port, topic, 0, at, at + 1) for at in (0, sent // 3, sent - 1)]
    if back["read"] != sent or not back["ok"] or not all(times):
        return Measurement({}, ok=False, note=f"{back['read']} of {sent} were delivered", raw=report)
    (first_ms,), (third_ms,), (last_ms,) = times
    rate = (sent - 1 - sent // 3) * 1000 / max(1, last_ms - third_ms)
    return Measurement({RATE: rate, CPU_US: cpu_us}, raw={**report, "first_stored_ms": first_ms})


def wait_delivered(target: Target, topic: str, messages: int) -> float:
    """Wait until a queue has so many messages.

    Returns the broker's processor time for each message that came meanwhile, in us. 0 if none came.
    """
    before, used = queue_end(target.port, topic), busy_seconds(target.pids())
    wait_for(lambda: queue_end(target.port, topic) >= messages, TIMEOUT_S)
    came = queue_end(target.port, topic) - before
    return (busy_seconds(target.pids()) - used) / came * 1e6 if came else 0.0


# -- lateness ----------------------------------------------------------------------------------------------


def lateness(context: Context, target: Target) -> Measurement:
    """Send at a fixed rate, and compare the store times of copies with the times of delivery. Milliseconds."""
    topic = context.topic("lateness")
    first = queue_end(target.port, SCHEDULE_TOPIC, SHORT - 1)
    report = context.run(
        target, "send", topic=topic, queues=1, create=True, delay_level=SHORT, rate=LATENESS_PER_S, seconds=LATENESS_S,
        connections=16, depth=64, size=200,
    )  # fmt: skip
    loop = SleepLoop()
    loop.start()
    sent = int(report["acked"])
    wait_delivered(target, topic, sent)
    loop.end()
    sources = store_times(target.port, SCHEDULE_TOPIC, SHORT - 1, first, first + sent)
    copies = store_times(target.port, topic, 0, 0, sent)
    if not len(sources) == len(copies) == sent > 0:
        return Measurement({}, ok=False, note=f"{sent} sent, {len(sources)} waited, {len(copies)} delivered")
    late = [float(copy - source - SHORT_MS) for source, copy in zip(sources, copies, strict=True)]
    values = {"early": float(sum(value < 0 for value in late))}
    for percent in (50, 99):
        values[f"p{percent}_ms"] = percentile(late, percent)
        values[f"loop_p{percent}_ms"] = percentile(loop.late_ms, percent)
        values[f"above_p{percent}_ms"] = values[f"p{percent}_ms"] - values[f"loop_p{percent}_ms"]
    return Measurement(values, ok=not report["errors"], raw=report)


# -- beside waiting messages -------------------------------------------------------------------------------


@contextmanager
def two_brokers(
    context: Context, kind: str, settings: Mapping[str, str | int | bool]
) -> Iterator[tuple[RingmqTarget, RingmqTarget]]:
    """Start a broker for waiting messages of a kind, and one without them."""
    with_waiting = RingmqTarget(context.folder / f"{kind}-waiting", settings, context.cpus)
    try:
        without = RingmqTarget(context.folder / f"{kind}-without", settings, context.cpus)
        try:
            yield with_waiting, without
        finally:
            without.close()
    finally:
        with_waiting.close()


def beside_waiting(context: Context, system: str) -> Measurement:
    """Send and pull on a broker with waiting messages and open halves and on one without, in turn.

    Values are medians of ratios. Counts if the messages and halves are still there at the end.
    """
    assert system == RingmqTarget.name
    with two_brokers(context, "delays", BESIDE) as (waiting, without):
        report = context.loader(waiting.port).run(
            "send", topic=context.topic("waiting"), create=True, connections=64, depth=16, size=200, delay_level=HOUR,
            messages=context.waiting_messages,
        )  # fmt: skip
        wait_for(lambda: queue_end(waiting.port, SCHEDULE_TOPIC, HOUR - 1) >= report["acked"], TIMEOUT_S)
        halves = context.loader(waiting.port).run(
            "send", topic=context.topic("halves"), create=True, connections=64, depth=16, size=200, half=True,
            messages=context.open_halves,
        )  # fmt: skip
        wait_for(lambda: queue_end(waiting.port, HALF_TOPIC) >= halves["acked"], TIMEOUT_S)
        pulls = context.topic("pulled")
        for target in (waiting, without):
            context.loader(target.port).run(
                "batch", topic=pulls, create=True, size=1024, connections=8, depth=2, messages=PULLED
            )
        sends = [plain_rate(context, waiting) / plain_rate(context, without) for _ in range(ROUNDS)]
        pulled = [_pull_rate(context, waiting, pulls) / _pull_rate(context, without, pulls) for _ in range(ROUNDS)]
        values = {
            "send_ratio": statistics.median(sends),
            "send_spread": max(sends) - min(sends),
            "pull_ratio": statistics.median(pulled),
            "pull_spread": max(pulled) - min(pulled),
            "total_mib": private_bytes(waiting.pids())["total"] / MIB,
        }
        still = queue_end(waiting.port, SCHEDULE_TOPIC, HOUR - 1), queue_end(waiting.port, HALF_TOPIC)
    wanted = context.waiting_messages, context.open_halves
    ok = all(there >= 0.99 * number for there, number in zip(still, wanted, strict=True))
    ok = ok and still == (report["acked"], halves["acked"])
    note = "" if ok else f"{report['acked']} messages and {halves['acked']} halves waited"
    return Measurement(values, ok=ok, note=note, raw=report)


def _pull_rate(context: Context, target: Target, topic: str) -> float:
    report: Report = context.run(
        target, "pull", topic=topic, connections=16, depth=4, count=32, warmup=context.warmup_s, seconds=context.seconds
    )
    return float(report[RATE])
