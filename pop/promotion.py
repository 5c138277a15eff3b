"""The start of a slave as the master: the copy of the former master's POP memory becomes this broker's own.

It is as after a power cut of the former master: what came after its last snapshot that has arrived is not in the copy.
The former master may have put check points of open messages into the log since, at its stop, and consumer offsets
behind them. The copy does not know those that were popped last, so the groups go on at the first of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ringmq.broker.config.run_config import store_config
from ringmq.native import ffi, lib
from ringmq.pop.copy_mark import own_copy
from ringmq.pop.log_place import LogPlace
from ringmq.pop.names import IDS_END, Names
from ringmq.pop.record_notice import RecordNotice, write_notice
from ringmq.pop.record_scan import RecordScan
from ringmq.pop.revive_records import CheckPoint, ReviveRecordError, read_record
from ringmq.remoting.names import revive_topic
from ringmq.services.kit.open_work import StoreLook
from ringmq.store.message_store import MessageStore
from ringmq.store.record_numbers import LONG_MAX

_Key = tuple[str, str, int]
"""Group, topic, queue id."""


class Copied(Protocol):
    """The part of `ringmq.pop.memory.PopMemory` that is used here."""

    pages: Any
    layout: Any
    base: Any
    header: Any
    folder: Path


def take_copy(look: StoreLook, memory: Copied, names: Names) -> int:
    """Make the copy this broker's own. Returns the number of queues whose consumer offset was lowered. Raises OSError.

    The former master may have reserved ids since, behind a clean stop, too, and copies of its last messages may have
    them: these are passed over.
    It may have left check points anywhere in the log, and its notice of them is not copied. So the next stop looks for
    all of them.
    """
    names.pass_over(IDS_END - names.ids_left)
    lowered = _lower_offsets(look, memory, names)
    if look.topics.queue(revive_topic(look.config.broker_cluster_name), 0) is not None:
        write_notice(look.root, RecordNotice(0, LONG_MAX))
    own_copy(memory.folder)
    return lowered


def _lower_offsets(look: StoreLook, memory: Copied, names: Names) -> int:
    firsts = _unknown_check_points(look, memory, names)
    lowered, plane = 0, look.plane
    for (group, topic, queue_id), first in firsts.items():
        group_id, found = plane.group_find(group), look.topics.queue(topic, queue_id)
        if group_id is not None and found is not None and plane.offset_get(group_id, found[1]) > first:
            plane.offset_put(group_id, found[1], first)
            lowered += 1
    return lowered


def _unknown_check_points(look: StoreLook, memory: Copied, names: Names) -> dict[_Key, int]:
    """The first message of each queue that a check point behind the moment of the copy names, and no window of it."""
    end, *_ = LogPlace.of(memory.header).end
    scan = RecordScan(MessageStore(store_config(look.config)), lambda topic, queue_id: -1)
    firsts: dict[_Key, int] = {}
    nexts: dict[_Key, int] | None = None
    for found in scan.written_check_points(end, int(look.plane.watermarks.dispatched_offset), look.log_end):
        try:
            point = read_record(found.tag, found.body)
        except ReviveRecordError:
            continue
        if not isinstance(point, CheckPoint):
            continue
        nexts = _next_offsets(memory, names) if nexts is None else nexts
        key = point.pop.group, point.pop.topic, point.pop.queue_id
        known = nexts.get(key, 0)
        for offset in point.open_offsets:
            if offset >= known:
                firsts[key] = min(offset, firsts.get(key, offset))
                break
    return firsts


def _next_offsets(memory: Copied, names: Names) -> dict[_Key, int]:
    """The offsets below which the windows of the copy know all messages. Raises MemoryError."""
    room = int(memory.layout.windows_max)
    places, ends = ffi.new("uint32_t[]", room), ffi.new("int64_t[]", room)
    count = int(lib.rmq_pop_reach(memory.pages, memory.layout, places, ends, room, ffi.new("uint32_t *")))
    if count < 0:
        raise MemoryError("no memory to read the windows of POP")
    windows = ffi.cast("struct rmq_pop_window *", memory.base + int(memory.layout.windows_at))
    found: dict[_Key, int] = {}
    for place in places[0:count]:
        name = names.of(int(windows[place].id))
        if name is not None:
            found[name.group, name.topic, name.queue_id] = int(windows[place].next_offset)
    return found
