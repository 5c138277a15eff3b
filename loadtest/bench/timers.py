"""The rows of timer messages: sends, one full slot, lateness, and plain sends beside a delivery."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace

from ringmq.loadtest.bench.delays import ROUNDS, SHAPE, TIMEOUT_S, delivered_rate, plain_rate, wait_delivered
from ringmq.loadtest.bench.rows import Context, first_messages
from ringmq.loadtest.bench.sleep_loop import SleepLoop, percentile
from ringmq.loadtest.bench.stored import queue_end, runtime_info, store_times, times_of, wait_for
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.load.tools import Report
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement, failed
from ringmq.remoting.message import MessageExt
from ringmq.remoting.names import WHEEL_TIMER_TOPIC
from ringmq.remoting.properties import TIMER_OUT_MS

HOUR_MS = 3_600_000
SLOTS, SLOT_MESSAGES = 20, 1000
"""Slots of the row `timer-slot` whose first messages count, and the messages of each."""
SLOTS_LEAD_S = 10.0
LEAD_S: Mapping[str, float] = {"stock": 100.0, RINGMQ: 15.0}
"""Seconds between the begin of the sends of a full slot and its time. Stock accepts 13,000/s to 27,000/s."""
RATE_PER_S = 20_000
PRECISION_MS = 1000
PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9}
BESIDE_S = 2.0


def _unread(port: int) -> int:
    return int(runtime_info(port)["timerOffsetBehind"])


def _all_in_wheel(target: Target, wanted: int) -> bool:
    return queue_end(target.port, WHEEL_TIMER_TOPIC) >= wanted and _unread(target.port) == 0


def _sleep_until(time_ms: int) -> None:
    time.sleep(max(0.0, time_ms / 1000 - time.time()))


# -- sends -------------------------------------------------------------------------------------------------


def accepted(context: Context, target: Target) -> Measurement:
    """Send plain, timer and plain messages. RingMQ's count if each is in the wheel within `settle_ms`.

    A short run before starts the worker, so that the row counts its processor time.
    """
    if refused := first_messages(context, target, timer_delay_ms=HOUR_MS):
        return failed(refused)
    before = plain_rate(context, target)
    waiting = queue_end(target.port, WHEEL_TIMER_TOPIC)
    report = context.run(
        target, "send", topic=context.topic("timer"), create=True, timer_delay_ms=HOUR_MS, warmup=context.warmup_s,
        seconds=context.seconds, messages=context.messages_max, **SHAPE,
    )  # fmt: skip
    wanted = waiting + report["acked"]
    in_time = wait_for(lambda: _all_in_wheel(target, wanted), context.settle_ms / 1000)
    unread = 0 if in_time else _unread(target.port)
    whole = wait_for(lambda: _all_in_wheel(target, wanted), TIMEOUT_S)
    rate = float(report[RATE])
    values = {RATE: rate, "to_plain": rate / statistics.mean((before, plain_rate(context, target))), "unread": unread}
    note = "" if in_time else f"{unread} of {report['acked']} came into the wheel late"
    ok = whole and not report["errors"] and rate > 0 and (in_time or target.name != RINGMQ)
    return Measurement(values, ok=ok, note=note, raw=report)


# -- one slot ----------------------------------------------------------------------------------------------


def _send_for(context: Context, target: Target, topic: str, deliver_ms: int, messages: int) -> Report:
    return context.loader(target.port).run(
        "send", topic=topic, queues=1, create=True, deliver_ms=deliver_ms, messages=messages, **SHAPE
    )


def full_slot(context: Context, target: Target) -> Measurement:
    """Deliver the first messages of twenty slots, then one full slot. Counts if none comes early."""
    firsts = _first_of_slots(context, target)
    measured = one_slot(context, target)
    values = {**measured.values, "first_ms": statistics.median(firsts), "first_max_ms": max(firsts)}
    early = "" if min(firsts) >= 0 else f"{-min(firsts):.0f} ms early"
    return replace(measured, values=values, ok=measured.ok and not early, note=measured.note or early)


def one_slot(context: Context, target: Target) -> Measurement:
    """Deliver messages that are due in the same millisecond.

    The rate is that of the last two thirds, by store times: a virtual machine is warm by then. Counts if every message
    is delivered once, none early.
    """
    if refused := first_messages(context, target, timer_delay_ms=HOUR_MS):
        return failed(refused)
    topic, lead_ms = context.topic("slot"), int(LEAD_S[target.name] * 1000)
    deliver_ms = (int(time.time() * 1000) + lead_ms) // 1000 * 1000
    report = _send_for(context, target, topic, deliver_ms, context.timer_messages)
    if time.time() * 1000 > deliver_ms - 1000:
        return failed(f"{report['acked']} messages were sent too late for their time")
    _sleep_until(deliver_ms)
    measured = delivered_rate(context, target, topic, report)
    if not measured.ok:
        return measured
    first_ms = float(measured.raw["first_stored_ms"] - deliver_ms)
    early = "" if first_ms >= 0 else f"{-first_ms:.0f} ms early"
    return replace(measured, values={**measured.values, "full_first_ms": first_ms}, ok=not early, note=early)


def _first_of_slots(context: Context, target: Target) -> list[float]:
    """Milliseconds from the time of each slot to the store time of its first message."""
    topic = context.topic("slots")
    begin_ms = (int(time.time() * 1000) + int(SLOTS_LEAD_S * 1000)) // 1000 * 1000
    times_ms = [begin_ms + number * 1000 for number in range(SLOTS)]
    for deliver_ms in times_ms:
        _send_for(context, target, topic, deliver_ms, SLOT_MESSAGES)
    wait_delivered(target, topic, SLOTS * SLOT_MESSAGES)
    firsts = [number * SLOT_MESSAGES for number in range(SLOTS)]
    found = [store_times(target.port, topic, 0, first, first + 1)[0] for first in firsts]
    return [float(stored - due) for stored, due in zip(found, times_ms, strict=True)]


# -- lateness ----------------------------------------------------------------------------------------------


def lateness(context: Context, target: Target) -> Measurement:
    """Send at a fixed rate, then plain messages at the same rate while the first come due. Milliseconds.

    A message is due its delay after its record in the timer topic was stored, but not later than a second behind
    TIMER_OUT_MS. Both queues have the same order, because all delays are equal.
    """
    topic, seconds = context.topic("timer_late"), context.timer_messages / RATE_PER_S
    delay_ms = int(seconds * 1000) + 5000
    first = queue_end(target.port, WHEEL_TIMER_TOPIC)
    shape = {"create": True, "rate": RATE_PER_S, "seconds": seconds, "connections": 16, "depth": 64, "size": 200}
    begin_ms = int(time.time() * 1000)
    report = context.run(target, "send", topic=topic, queues=1, timer_delay_ms=delay_ms, **shape)
    _sleep_until(begin_ms + delay_ms - 1000)
    loop = SleepLoop()
    loop.start()
    plain = context.run(target, "send", topic=context.topic("plain"), **shape)
    sent = int(report["acked"])
    wait_delivered(target, topic, sent)
    loop.end()
    due = times_of(lambda source: _due_ms(source, delay_ms), target.port, WHEEL_TIMER_TOPIC, 0, first, first + sent)
    copies = store_times(target.port, topic, 0, 0, sent)
    if not len(due) == len(copies) == sent > 0:
        return Measurement({}, ok=False, note=f"{sent} sent, {len(due)} waited, {len(copies)} delivered")
    late = sorted(float(copy - due_ms) for due_ms, copy in zip(due, copies, strict=True))
    values = {"early": float(sum(value < 0 for value in late)), "plain_p99_us": float(plain["latency_us"]["p99"])}
    for name, percent in PERCENTILES.items():
        values[f"{name}_ms"] = percentile(late, percent)
        values[f"loop_{name}_ms"] = percentile(loop.late_ms, percent)
        values[f"above_{name}_ms"] = values[f"{name}_ms"] - values[f"loop_{name}_ms"]
    return Measurement(values, ok=not report["errors"] and not plain["errors"], raw=report)


def _due_ms(source: MessageExt, delay_ms: int) -> int:
    return min(source.store_timestamp_ms + delay_ms, int(source.properties[TIMER_OUT_MS]) + PRECISION_MS)


# -- beside a delivery -------------------------------------------------------------------------------------


def beside_delivery(context: Context, target: Target) -> Measurement:
    """Send plain messages without and with the delivery of a full slot, in turn. Values are medians of ratios.

    Counts if the slot was still being delivered when each run ended.
    """
    rates, delays, notes = [], [], []
    for _ in range(ROUNDS):
        topic = context.topic("slot")
        deliver_ms = (int(time.time() * 1000) + int(LEAD_S[target.name] * 1000)) // 1000 * 1000
        sent = int(_send_for(context, target, topic, deliver_ms, context.timer_messages)["acked"])
        wait_for(lambda: _unread(target.port) == 0, TIMEOUT_S)
        without = _plain(context, target)
        _sleep_until(deliver_ms)
        beside = _plain(context, target)
        delivered = queue_end(target.port, topic)
        if not 0 < delivered < sent:
            notes.append(f"{delivered} of {sent} were delivered when the sends ended")
        wait_delivered(target, topic, sent)
        rates.append(float(beside[RATE]) / float(without[RATE]))
        delays.append(float(beside["latency_us"]["p99"]) / float(without["latency_us"]["p99"]))
    values = {
        "send_ratio": statistics.median(rates),
        "send_spread": max(rates) - min(rates),
        "p99_ratio": statistics.median(delays),
        "p99_spread": max(delays) - min(delays),
    }
    return Measurement(values, ok=not notes, note="; ".join(notes))


def _plain(context: Context, target: Target) -> Report:
    seconds = min(BESIDE_S, context.seconds)
    return context.run(
        target, "send", topic=context.topic("plain"), create=True, warmup=context.warmup_s, seconds=seconds, **SHAPE
    )
