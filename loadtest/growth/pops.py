"""The cost of open messages, and of groups that pop: each point has a broker of its own on an empty store."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial

from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.bench.pops import BROKER_NAME, POP_MAX, QUEUES, SETTINGS, fill, pop_row
from ringmq.loadtest.bench.rows import pull_row, send_row
from ringmq.loadtest.growth.bench import RECORD_BYTES, Bench, Point, Scenario, busy_percent, need_space
from ringmq.loadtest.growth.scenarios import LOAD
from ringmq.loadtest.load.pops import Popped, Popper
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.measurement import RATE, Measurement, goals
from ringmq.loadtest.measuring.tables import Column

POP = "pop"
"""The worker, and the part of its segment's name."""
HOUR_MS = 3_600_000
OPEN_S = 300.0
"""Longest time of the pops that leave messages open."""
BESIDE = 1_000_000
"""Messages of other topics that a point writes, at most."""
OF_A_GROUP = QUEUES * POP_MAX
"""Messages that a group leaves open, in all queues."""
KEPT = "kept"
"""The group whose receipt is used after a start."""
Leave = Callable[[RingmqTarget, str], int]
"""Leaves messages of a filled topic open, and returns their number."""


def open_messages(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure beside more and more open messages of one group, each of a pop of its own: none can cost more."""
    for value in values:
        leave = partial(_leave_open, bench) if value else None
        yield Point(value, _measure(bench, int(value), 1, leave, lambda topic: topic))


def popping_groups(bench: Bench, values: Sequence[float]) -> Iterator[Point]:
    """Measure beside more and more groups that have popped some messages of each queue of one topic."""
    for value in values:
        leave = partial(_pop_by_groups, int(value))
        yield Point(value, _measure(bench, OF_A_GROUP, int(value), leave, lambda topic: f"{topic}-0"))


def _measure(
    bench: Bench, messages: int, groups: int, leave: Leave | None, group_of: Callable[[str], str]
) -> Measurement:
    """Fill a topic, leave all open for each group, and measure memory, a start after kill -9, pops, sends and pulls.

    Counts if the start forgets no open message of a group, and a receipt of before is taken.
    """
    need_space(bench, (messages + 3 * BESIDE) * RECORD_BYTES, "open messages")
    context, topic = bench.context, bench.context.topic("open")
    values: dict[str, float] = {}
    faults: list[str] = []
    with contextlib.closing(bench.start(SETTINGS)) as target:
        pop_row("first", count=POP_MAX, connections=1, depth=1)(context, target)  # starts the worker
        window, private = _window_bytes(target), _private_bytes(target)
        if leave is not None:
            wanted = groups * fill(context, target, topic, messages)
            kept = asyncio.run(_pop(target.port, topic, KEPT))
            if (opened := leave(target, topic)) != wanted:
                faults.append(f"{opened} of {wanted} open")
            values["window_bytes"] = (_window_bytes(target) - window) / wanted
            values["private_bytes"] = (_private_bytes(target) - private) / wanted
            values["idle_percent"] = busy_percent(target, context.idle_seconds)
            target.start_again({**bench.settings, **SETTINGS})
            taken_s, fault = asyncio.run(_first_requests(target.port, topic, kept, group_of(topic)))
            values |= {"start_s": target.start_seconds, "taken_s": taken_s}
            faults += fault
        popped = pop_row("popped", count=POP_MAX, connections=4, depth=4)(context, target)
        sent = send_row("sent", "send", queues=QUEUES, **LOAD)(context, target)
        pulled = pull_row(context, target)
    values |= {RATE: popped.values.get(RATE, 0.0), "sent_per_s": sent.values.get(RATE, 0.0)}
    values["pulled_per_s"] = pulled.values.get(RATE, 0.0)
    note = "; ".join(filter(None, [*faults, popped.note, sent.note, pulled.note]))
    return Measurement(values, ok=popped.ok and sent.ok and pulled.ok and not faults, note=note, raw=popped.raw)


# -- open messages -----------------------------------------------------------------------------------------


def _leave_open(bench: Bench, target: RingmqTarget, topic: str) -> int:
    left = bench.context.loader(target.port).run(
        "pop", topic=topic, queues=QUEUES, group=topic, broker_name=BROKER_NAME, invisible_ms=HOUR_MS, count=1,
        connections=4, depth=16, leave_open=True, seconds=OPEN_S,
    )  # fmt: skip
    return int(left["popped"]) if left["ok"] else 0


def _pop_by_groups(groups: int, target: RingmqTarget, topic: str) -> int:
    async def pop_all() -> int:
        return sum([len(await _pop(target.port, topic, f"{topic}-{number}")) for number in range(groups)])

    return asyncio.run(pop_all())


@contextlib.asynccontextmanager
async def _popper(port: int, topic: str, group: str) -> AsyncIterator[Popper]:
    client = RemotingClient()
    try:
        yield Popper(client, lambda: f"127.0.0.1:{port}", BROKER_NAME, topic, group)
    finally:
        await client.close()


async def _pop(port: int, topic: str, group: str) -> list[Popped]:
    """The messages of a topic, at most OF_A_GROUP."""
    found: list[Popped] = []
    async with _popper(port, topic, group) as popper:
        while len(found) < OF_A_GROUP and (more := await popper.pop(POP_MAX, HOUR_MS)):
            found += more
    return found


async def _first_requests(port: int, topic: str, kept: Sequence[Popped], group: str) -> tuple[float, list[str]]:
    """The time in seconds of the first acknowledgement and the first pop after a start, and what was wrong."""
    async with _popper(port, topic, KEPT) as popper:
        begun_s = time.monotonic()
        is_taken = await popper.ack(kept[0].receipt)
        again = await popper.pop(POP_MAX, HOUR_MS)
        taken_s = time.monotonic() - begun_s
    places = {(one.receipt.queue_id, one.receipt.offset) for one in kept}
    shown = [one for one in again if (one.receipt.queue_id, one.receipt.offset) in places]
    shown += await _pop(port, topic, group)
    faults = [] if is_taken else ["a receipt of before the start was refused"]
    return taken_s, [*faults, *([f"{len(shown)} open messages were shown again"] if shown else [])]


# -- what they cost ----------------------------------------------------------------------------------------


def _window_bytes(target: RingmqTarget) -> int:
    """Allocated bytes of the segment with the windows."""
    from ringmq.ipc import segment

    (found,) = segment.SHM_DIR.glob(f"{segment.lasting_name(target.store, POP)}-*")
    return found.stat().st_blocks * 512


def _private_bytes(target: RingmqTarget) -> int:
    from ringmq.ipc.memory import private_bytes as anonymous_bytes

    return anonymous_bytes([pid for pid, name in target.pids().items() if name == POP])


COLUMNS = (
    Column("popped/s", RATE),
    Column("of the first", "kept", "{:.2f}"),
    Column("sent/s", "sent_per_s"),
    Column("pulled/s", "pulled_per_s"),
    Column("window B each", "window_bytes", "{:.1f}"),
    Column("private B each", "private_bytes", "{:.1f}"),
    Column("idle CPU %", "idle_percent", "{:.1f}"),
    Column("start s", "start_s", "{:.2f}"),
    Column("first ack and pop s", "taken_s", "{:.3f}"),
)
POPS = (
    Scenario(
        "open-messages",
        "open messages of a group, each of a pop of its own; then pops of 32 with an ack for each, 4x4, 200 B",
        "open",
        (0, 1e4, 1e6),
        open_messages,
        COLUMNS,
        {1e6: goals("kept >=0.9, window_bytes <=64, private_bytes <=32, start_s <=1")},
        once=True,
    ),
    Scenario(
        "popping-groups",
        f"groups that left {OF_A_GROUP} messages of 8 queues open; then pops of 32 with an ack for each, 4x4, 200 B",
        "groups",
        (1, 100, 1000),
        popping_groups,
        COLUMNS,
        once=True,
    ),
)
QUICK: Mapping[str, tuple[float, ...]] = {"open-messages": (0, 2000), "popping-groups": (1, 4)}
"""Points of a quick run."""
