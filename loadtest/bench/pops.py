"""The rows of POP: pops and acknowledgements at full speed, and the time until open messages can be popped again."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.bench.rows import Context, Run, latencies
from ringmq.loadtest.bench.sleep_loop import percentile
from ringmq.loadtest.bench.stored import change_settings, queue_end, wait_for
from ringmq.loadtest.load.pops import Popper
from ringmq.loadtest.load.targets import Target
from ringmq.loadtest.load.tools import Report, ToolError
from ringmq.loadtest.measuring.measurement import RATE, STOCK, Measurement

BROKER_NAME = "bench"
SETTINGS: Mapping[str, str] = {"brokerName": BROKER_NAME}
"""Receipts name the broker."""
QUEUES, BODY_BYTES, POP_MAX = 8, 200, 32
INVISIBLE_MS = 300_000
"""Longer than any run: a message that a run sees twice was given twice within its invisible time."""
FIRST_MESSAGES, FIRST_S = 50_000, 1.0
"""Of the run that starts workers, warms a JIT compiler up, and tells how many messages a row needs."""
BUFFER_MERGE = "enablePopBufferMerge"
FILLED_S = 60.0
REVIVED_INVISIBLE_MS = 3000
REVIVED_TIMEOUT_S = 60.0


# -- full speed --------------------------------------------------------------------------------------------


def pop_row(row: str, **options: object) -> Run:
    """Return a run of pops of all queues, whose messages are acknowledged at once.

    A message counts when its acknowledgement is answered. Stock runs with its defaults and with its buffer for check
    points; the faster one is kept, and named.
    """

    def run(context: Context, target: Target) -> Measurement:
        if target.name != STOCK:
            return _full_speed(context, target, row, options)
        plain = _full_speed(context, target, row, options)
        change_settings(target.port, {BUFFER_MERGE: "true"})
        try:
            merged = _full_speed(context, target, row, options)
        finally:
            change_settings(target.port, {BUFFER_MERGE: "false"})
        rates = plain.values.get(RATE, 0.0), merged.values.get(RATE, 0.0)
        name, best = ("with its defaults", plain) if rates[0] >= rates[1] else (f"with {BUFFER_MERGE}", merged)
        note = f"stock {name}; {rates[0]:,.0f} by default, {rates[1]:,.0f} with {BUFFER_MERGE}"
        return replace(best, ok=plain.ok and merged.ok, note="; ".join(filter(None, (best.note, note))))

    return run


def _full_speed(context: Context, target: Target, row: str, options: Mapping[str, object]) -> Measurement:
    first = _popped(context, target, context.topic(row), FIRST_MESSAGES, 0.0, FIRST_S, options)
    wanted = int(1.3 * first[RATE] * (context.warmup_s + context.seconds)) if first["ok"] else FIRST_MESSAGES
    messages = min(max(wanted, FIRST_MESSAGES), context.messages_max)
    report = _popped(context, target, context.topic(row), messages, context.warmup_s, context.seconds, options)
    rate = float(report[RATE])
    values = {RATE: rate, **latencies(report), "loader_cpu": float(report["loader_cpu"]["share"])}
    if rate:
        values["cpu_us"] = 1e6 * sum(report["server_cpu"].values()) / rate
    faults = {name: report[name] for name in ("twice", "came_back", "skipped", "wrong_crc", "bad_answers")}
    note = "" if report["ok"] else f"{report['popped']} popped, {report['acked']} acknowledged, {faults}"
    if report["errors"]:
        note += f" answers by code {report['errors']}: {report['remark'][:100]}"
    return Measurement(values, ok=bool(report["ok"]) and rate > 0, note=note or report["trouble"], raw=report)


def _popped(
    context: Context, target: Target, topic: str, messages: int, warmup_s: float, seconds: float,
    options: Mapping[str, object],
) -> Report:  # fmt: skip
    """Fill a topic, and pop it for some seconds, or until it is empty."""
    fill(context, target, topic, messages)
    return context.run(
        target, "pop", topic=topic, queues=QUEUES, group=topic, broker_name=BROKER_NAME, invisible_ms=INVISIBLE_MS,
        warmup=warmup_s, seconds=seconds, **options,
    )  # fmt: skip


def fill(context: Context, target: Target, topic: str, messages: int) -> int:
    """Fill a topic, and wait until its queues show everything: a run pops what they show at its beginning.

    Returns the number of its messages. Raises ToolError if none is stored, or if the queues do not show all in time.
    """
    report = context.loader(target.port).run(
        "batch", topic=topic, queues=QUEUES, create=True, size=BODY_BYTES, batch=POP_MAX, connections=8, depth=2,
        messages=messages,
    )  # fmt: skip
    stored = int(report["acked"])
    if not stored:
        raise ToolError(f"{topic} has no messages: {report['errors']} {report['remark'][:100]} {report['trouble']}")

    def shown() -> int:
        return sum(queue_end(target.port, topic, queue) for queue in range(QUEUES))

    if not wait_for(lambda: shown() >= stored, FILLED_S):
        raise ToolError(f"{topic} shows {shown()} of {stored} messages after {FILLED_S:g} s")
    return stored


# -- messages that come back -------------------------------------------------------------------------------


@dataclass
class _Revivals:
    """Messages that came back. `late_ms`: by message, from the end of its invisible time until a pop found it."""

    due_ms: dict[str, int] = field(default_factory=dict)
    late_ms: dict[str, float] = field(default_factory=dict)
    again: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


def revival_row(messages: int, pause_s: float) -> Run:
    """Return a run that leaves popped messages open, a pop each `pause_s`, and pops again until all came back.

    The lateness is that of the pop which found a message, by the broker's clock, and holds the time of one request.
    Counts if every message came back once, and none early.
    """

    def run(context: Context, target: Target) -> Measurement:
        topic = context.topic("pop_revival")
        filled = fill(context, target, topic, messages)
        seen = asyncio.run(_revive(target.port, topic, filled, pause_s))
        late = list(seen.late_ms.values())
        early = sum(value < 0 for value in late)
        if len(late) != filled or seen.again or early:
            note = f"{len(seen.due_ms)} of {filled} popped, {len(late)} came back, {seen.again} again, {early} early"
            return Measurement({}, ok=False, note=note)
        values = {f"p{percent}_ms": percentile(late, percent) for percent in (50, 99)} | {"max_ms": max(late)}
        values[RATE] = len(late) / max(seen.last_s - seen.first_s, 1e-3)
        return Measurement(values)

    return run


async def _revive(port: int, topic: str, messages: int, pause_s: float) -> _Revivals:
    client, seen = RemotingClient(), _Revivals()
    popper = Popper(client, lambda: f"127.0.0.1:{port}", BROKER_NAME, topic, topic)
    deadline = time.monotonic() + REVIVED_TIMEOUT_S
    next_s = time.monotonic()
    try:
        while len(seen.late_ms) < messages and time.monotonic() < deadline:
            found = await popper.pop(POP_MAX, REVIVED_INVISIBLE_MS)
            now_s, back = time.monotonic(), []
            for one in found:
                key = one.message.properties["KEYS"]  # the messages of a batch share the UNIQ_KEY of the batch
                if one.message.reconsume_times == 0:
                    seen.due_ms[key] = one.receipt.due_ms
                    continue
                back.append(one.receipt)
                seen.again += key in seen.late_ms
                seen.late_ms[key] = float(one.receipt.pop_time_ms - seen.due_ms[key])
                seen.first_s, seen.last_s = seen.first_s or now_s, now_s
            if back:
                await popper.ack_all(back)
            elif pause_s and len(seen.due_ms) < messages:
                next_s += pause_s
                await asyncio.sleep(max(0.0, next_s - time.monotonic()))
    finally:
        await client.close()
    return seen
