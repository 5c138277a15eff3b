"""The row of many waiting timer messages: their cost in memory and time, sends beside them, and a restart."""

import statistics
import time

from ringmq.loadtest.bench.delays import ROUNDS, SHAPE, two_brokers
from ringmq.loadtest.bench.rows import MIB, Context
from ringmq.loadtest.bench.stored import queue_end, runtime_info, wait_for
from ringmq.loadtest.load.process_stats import cpu_seconds, private_bytes
from ringmq.loadtest.load.targets import RingmqTarget, Target
from ringmq.loadtest.measuring.measurement import RATE, Measurement
from ringmq.remoting.names import WHEEL_TIMER_TOPIC

TOMORROW_MS = 86_400_000
TIMEOUT_S = 300.0
ACCEPT_S = 2.0


def waiting_timers(context: Context, system: str) -> Measurement:
    """Fill a wheel for tomorrow. Compare its broker with one without waiting messages, then kill and start it.

    Counts if every message is in the wheel before and after the restart. `accept_ratio`: median of rounds in turn.
    """
    assert system == RingmqTarget.name
    with two_brokers(context, "timers", {}) as (waiting, without):
        report = context.loader(waiting.port).run(
            "send", topic=context.topic("waiting"), create=True, timer_delay_ms=TOMORROW_MS,
            messages=context.waiting_timers, **SHAPE,
        )  # fmt: skip
        in_wheel = wait_for(lambda: _are_in_wheel(waiting, report["acked"]), TIMEOUT_S)
        for target in (waiting, without):
            _accepted(context, target)
        ratios = [_accepted(context, waiting) / _accepted(context, without) for _ in range(ROUNDS)]
        wanted = queue_end(waiting.port, WHEEL_TIMER_TOPIC)
        in_wheel &= wait_for(lambda: _are_in_wheel(waiting, wanted), TIMEOUT_S)
        values = {
            "accept_ratio": statistics.median(ratios),
            "accept_spread": max(ratios) - min(ratios),
            "idle_percent": _idle_percent(waiting, context.idle_seconds),
            "total_mib": private_bytes(waiting.pids())["total"] / MIB,
        }
        waiting.start_again({})
        values["restart_s"] = waiting.start_seconds
        in_wheel &= wait_for(lambda: _are_in_wheel(waiting, wanted), TIMEOUT_S)
        values["after_restart_mib"] = private_bytes(waiting.pids())["total"] / MIB
    ok = in_wheel and wanted >= context.waiting_timers and not report["errors"]
    return Measurement(values, ok=ok, note=f"{wanted} messages waited", raw=report)


def _are_in_wheel(target: Target, wanted: int) -> bool:
    behind = int(runtime_info(target.port)["timerOffsetBehind"])
    return queue_end(target.port, WHEEL_TIMER_TOPIC) >= wanted and behind == 0


def _accepted(context: Context, target: Target) -> float:
    """Return the rate of timer sends."""
    report = context.run(
        target, "send", topic=context.topic("timer"), create=True, timer_delay_ms=TOMORROW_MS,
        warmup=context.warmup_s, seconds=min(ACCEPT_S, context.seconds), **SHAPE,
    )  # fmt: skip
    return float(report[RATE])


def _idle_percent(target: Target, seconds: float) -> float:
    pids = target.pids()
    before = cpu_seconds(pids)
    time.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before) / seconds
