"""Takes over the messages that a RocketMQ broker has left open: its records in the log become windows and entries.

The main process does it at a start, before any worker runs. After a start that dies on the way [pop-take-over-noted,
pop-window-taken-over, pop-names-taken-over], the next one does all again. From pop-take-over-counted on it has the
memory, and from pop-memory-taken-over on a power cut leaves it, too. The records stay in the log, and the offset of the
revive group stays: a RocketMQ broker that gets the store back finds them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.broker.config.run_config import store_config
from ringmq.native import ffi, lib
from ringmq.pop import image_file
from ringmq.pop.clamp import end_of
from ringmq.pop.memory import PopMemory, describe
from ringmq.pop.names import Names
from ringmq.pop.open_pops import OpenPop, OpenPops, plan_window
from ringmq.pop.record_notice import RecordNotice, write_notice
from ringmq.pop.record_scan import RecordScan, revive_topics
from ringmq.pop.revive_records import REVIVE_GROUP
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.kit.open_work import StoreLook
from ringmq.store import layout, markers
from ringmq.store.crash_points import passed
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import read_queue_ends
from ringmq.store.topic_start_offsets import read_start_offsets

log = logging.getLogger(__name__)

RECORDS_MAX = 10_000_000
"""The most records that a start reads. Each takes some 0.7 KB."""
POP_MESSAGES_MAX: int = lib.RMQ_POP_POINT_MESSAGES
"""Messages of a pop that no record names: a stop writes one check point of them."""
TELL_MS = 5000
"""Time between two log lines while records are read."""

_Key = tuple[str, str, int]
"""Group, topic, queue id."""


class TakeOverError(ValueError):
    """The open messages cannot be taken over. The message names the cause. Log, queues and offsets are as before. The
    memory of an earlier time is gone, and `pop/records` may be there: the next start reads all again."""


class _Queue(Struct):
    """A queue of the plane. `committed`: -1 = the group has none. `bounds`: its first and its next message."""

    group_id: int
    slot: int
    committed: int
    bounds: tuple[int, int]


class _Plan(Struct):
    """One window: where its group goes on, and what is open below. `missing`: offsets that no record names."""

    key: _Key
    queue: _Queue
    next_offset: int
    pops: list[OpenPop]
    missing: list[int]


def is_of_another_broker(root: Path, log_end: int, *, is_clean: bool) -> bool:
    """True if a RocketMQ broker has had the store since the memory was left. `is_clean`: the memory says that it was
    left by a clean stop. Raises OSError."""
    if markers.has_abort(root):
        return markers.is_abort_of_stock(root)
    ends = read_queue_ends(root)
    return not is_clean if ends is None else log_end > ends.log_end


def take_over(look: StoreLook) -> bool:
    """Make the memory from records in the log. False if none is open: then there is no memory.

    Raises TakeOverError if they cannot be read or kept. Without them groups would go on behind open messages.
    """
    try:
        messages = _take_over(look)
    except OSError as error:
        text = f"the open messages of POP that another broker has left cannot be taken over: {describe(error)}"
        raise TakeOverError(text) from error
    if messages:
        log.info("%s", f"pop: {messages} messages are open that another broker has given to consumers")
    return messages > 0


def _take_over(look: StoreLook) -> int:
    """The number of open messages. Raises OSError."""
    if not revive_topics(look.root) and not _has_timers(look):
        return 0
    found = _read(look)
    has_open = any(one.offsets and _queue_of(look, _key_of(one)) is not None for one in found.all())
    plans = list(_plans(look, found))
    if not has_open and not plans:
        return 0
    until_ms = max(one.pop.pop_time_ms + one.invisible_ms for one in found.all())
    image_file.make_folder(look.root)
    write_notice(look.root, RecordNotice(0, until_ms))  # without a plan, too: a stop acknowledges what is done by then
    passed("pop-take-over-noted")
    return _make(look, plans) if plans else 0


def _key_of(one: OpenPop) -> _Key:
    return one.pop.group, one.pop.topic, one.pop.queue_id


def _has_timers(look: StoreLook) -> bool:
    queue = look.topics.queue(layout.TIMER_TOPIC, 0)
    if queue is None:
        return False
    return end_of(look.plane.queue(queue[1])) > 0


def _read(look: StoreLook) -> OpenPops:
    plane = look.plane
    group_id = plane.group_find(REVIVE_GROUP)

    def handled(topic: str, queue_id: int) -> int:
        queue = look.topics.queue(topic, queue_id)
        return -1 if queue is None or group_id is None else plane.offset_get(group_id, queue[1])

    found = OpenPops()
    scan = RecordScan(MessageStore(store_config(look.config)), handled)
    dispatched, delay_ms = int(plane.watermarks.dispatched_offset), look.config.timer_max_delay_sec * 1000
    next_tell_ms = monotonic_ms() + TELL_MS
    for count, record in enumerate(scan.records(dispatched, look.log_end, delay_ms), 1):
        if count > RECORDS_MAX:
            text = f"more than {RECORDS_MAX} records of POP's open messages are in the log"
            raise TakeOverError(f"{text}; let a RocketMQ broker deliver these messages, and stop it cleanly")
        found.add(*record)
        if monotonic_ms() >= next_tell_ms:
            next_tell_ms = monotonic_ms() + TELL_MS
            log.info("%s", f"pop: {count} records of open messages that another broker has left are read")
    if found.damaged:
        log.warning("%s", f"pop: {found.damaged} records of open messages cannot be read: {found.damage}")
    return found


# ---- plans ----


def _plans(look: StoreLook, found: OpenPops) -> Iterable[_Plan]:
    """A plan for each queue with open messages. Those of topics and groups that are gone have none, as in RocketMQ."""
    by_queue: dict[_Key, list[OpenPop]] = {}
    was_killed = markers.has_abort(look.root)
    for one in found.all():
        by_queue.setdefault(_key_of(one), []).append(one)
    for key, pops in by_queue.items():
        queue = _queue_of(look, key)
        plan = None if queue is None else plan_window(queue.committed, queue.bounds, pops, was_killed=was_killed)
        if queue is not None and plan is not None:
            yield _Plan(key, queue, *plan)


def _queue_of(look: StoreLook, key: _Key) -> _Queue | None:
    group, topic, queue_id = key
    plane, group_id = look.plane, look.plane.group_find(group)
    found = look.topics.queue(topic, queue_id)
    if found is None or group_id is None or not int(plane.group(group_id).config) & lib.RMQ_GROUP_LIVE:
        return None
    row = plane.queue(found[1])
    return _Queue(group_id, found[1], plane.offset_get(group_id, found[1]), (int(row.min_offset), end_of(row)))


# ---- memory ----


def _make(look: StoreLook, plans: list[_Plan]) -> int:
    """Make the memory, and bring it to the disk. Returns the number of open messages. Raises OSError.

    It counts from its start id on. A start that dies before leaves memory that lacks messages.
    """
    config, start_id = look.config, int(look.plane.watermarks.start_id)
    needed = sum(sum(len(one.offsets) for one in plan.pops) + len(plan.missing) for plan in plans)
    memory = PopMemory.make(
        look.root, 0, look.log_end, entries_max=max(config.pop_open_max, needed),
        windows_max=max(config.offsets_max, len(plans)),
    )  # fmt: skip
    try:
        births = read_start_offsets(look.root)
        names = Names(memory.folder)
        try:
            windows = lib.rmq_pop_windows_open(
                memory.pages, memory.layout, wall_ms(), monotonic_ms(), ffi.new("uint64_t *")
            )
            if windows == ffi.NULL:
                raise MemoryError("no memory to read the windows of POP")
            try:
                for plan in plans:
                    _fill(windows, names, plan, births.get(plan.key[1], 0), start_id)
                    passed("pop-window-taken-over")
                messages = int(lib.rmq_pop_counts_of(windows).open)
            finally:
                lib.rmq_pop_windows_close(windows)
            names.sync()
            passed("pop-names-taken-over")
        finally:
            names.close()
        memory.touch_header()
        memory.header.start_id = start_id
        passed("pop-take-over-counted")
        memory.save_whole()
        passed("pop-memory-taken-over")
        return messages
    except BaseException:
        memory.discard()
        raise
    finally:
        if memory.pages != ffi.NULL:
            memory.close(clean=False)


def _fill(windows: Any, names: Names, plan: _Plan, birth: int, start_id: int) -> None:
    """Make one window with its entries. Raises OSError."""
    place = ffi.new("uint32_t *")
    window_id = names.add(*plan.key, birth)
    _check(lib.rmq_pop_window_make(windows, window_id, plan.key[2], birth, plan.next_offset, place))
    if plan.queue.committed >= 0:
        lib.rmq_pop_set_committed(windows, place[0], plan.queue.committed, start_id)
    for one in plan.pops:
        start, invisible_ms = one.pop.start_offset, min(one.invisible_ms, lib.RMQ_POP_INVISIBLE_MS_MAX)
        opened = sorted(one.offsets)
        _give(windows, place[0], start, one.pop.pop_time_ms, invisible_ms, one.revive_queue, opened, in_log=True)
    for at in range(0, len(plan.missing), POP_MESSAGES_MAX):
        missing = plan.missing[at : at + POP_MESSAGES_MAX]
        starts = ffi.new("int64_t[]", missing[:1])
        time_ms = int(lib.rmq_pop_time_for(windows, place, starts, 1, wall_ms()))
        _give(windows, place[0], missing[0], time_ms, 0, 0, missing)
        lib.rmq_pop_unsent(windows, place[0], missing[0], time_ms)


def _give(
    windows: Any, place: int, start: int, time_ms: int, invisible_ms: int, revive_queue: int, offsets: list[int],
    *, in_log: bool = False,
) -> None:  # fmt: skip
    give = ffi.new("struct rmq_pop_give *", {
        "pop_time_ms": time_ms, "mono_ms": monotonic_ms(), "start_offset": start, "next_offset": 0,
        "invisible_ms": invisible_ms, "revive_queue": revive_queue, "in_log": in_log,
    })  # fmt: skip
    _check(lib.rmq_pop_window_give(windows, place, give, offsets, len(offsets)))


def _check(code: int) -> None:
    if code < 0:
        raise OSError(-code, os.strerror(-code), "windows and entries of POP")
