"""POP's memory at a start of the broker: compared with the log, cut back to the queues, and asked for open messages.

The main process calls this when the store is recovered, before any worker runs (`services/kit/open_work.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.pop.clamp import Clamped, clamp, reach
from ringmq.pop.copy_mark import run_of_copy
from ringmq.pop.image_file import FOLDER, IMAGE, NO_ROOM
from ringmq.pop.log_place import Log, LogPlace, compare
from ringmq.pop.memory import PopMemory, describe
from ringmq.pop.memory_copy import newest_copy
from ringmq.pop.names import IDS_END, Names
from ringmq.pop.promotion import take_copy
from ringmq.pop.record_notice import read_notice
from ringmq.pop.record_scan import revive_topics
from ringmq.pop.take_over import TakeOverError, is_of_another_broker, take_over
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.kit.open_work import StoreLook
from ringmq.store.config_files import ConfigFileError
from ringmq.store.topic_start_offsets import read_start_offsets

log = logging.getLogger(__name__)

FEW_IDS = IDS_END // 4
"""Ids below which a start without open messages begins with id 1 again."""


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a consumer may hold a message. Else the first request of POP starts the worker.

    Memory that is of another log is removed, and so is that of a store which another broker has had since. Then groups
    continue at their consumer offsets, and what is open is read from the log.

    Raises OSError: the worker makes new memory, and groups go on at their consumer offsets. Raises TakeOverError if
    open messages may lie behind these offsets.
    """
    look = StoreLook(config, root)
    try:
        has_entries = _known(look, config, root)
    except OSError as error:
        if _may_lie_behind(root):
            raise TakeOverError(f"the memory of POP's open messages cannot be read: {describe(error)}") from error
        raise
    return take_over(look) if has_entries is None else has_entries


def _known(look: StoreLook, config: BrokerConfig, root: Path) -> bool | None:
    """True if the memory has entries. None: there is none that is true of the log."""
    memory = _memory(look, config, root)
    if memory is None:
        return None
    try:
        return _check(look, memory)
    finally:
        if memory.pages != ffi.NULL:
            memory.close(clean=False)


def _may_lie_behind(root: Path) -> bool:
    """True if records may name open messages that lie behind the consumer offsets of their groups."""
    try:
        return bool(read_notice(root).until_ms or revive_topics(root))
    except OSError:
        return True


def _is_damaged(root: Path) -> bool:
    """Look at a copy: a start that dies must not leave windows that lack the damaged slots."""
    with newest_copy(root) as copy:
        return copy.damaged > 0


def _memory(look: StoreLook, config: BrokerConfig, root: Path) -> PopMemory | None:
    """The memory, if it is true of the log."""
    if not (root / FOLDER / IMAGE).exists():
        return None
    memory = PopMemory.load(root, entries_max=config.pop_open_max, windows_max=config.offsets_max)
    if memory is None:
        return None
    if not memory.header.start_id:
        text = f"{memory.folder}: a start that died has left it half-filled; the records in the log tell what is open"
    elif is_of_another_broker(root, look.log_end, is_clean=bool(memory.header.clean)):
        text = f"{memory.folder}: another broker has had the store since; its records tell what is open"
    elif not _is_of_log(look, memory):
        text = f"{memory.folder}: the log is not the one of this memory; groups of POP go on at their consumer offsets"
    else:
        return memory
    log.warning("%s", text)
    memory.discard()
    return None


def _is_of_log(look: StoreLook, memory: PopMemory) -> bool:
    place = LogPlace.of(memory.header)
    return compare(place, look.log(), int(look.plane.watermarks.min_offset), look.log_end) is not Log.OTHER


def _check(look: StoreLook, memory: PopMemory) -> bool | None:
    """Cut the windows back, and leave the sign that this start has done it.

    None: the memory was damaged and is removed, because records in the log may name open messages that lie behind
    consumer offsets.
    """
    try:
        births = read_start_offsets(look.root)
    except ConfigFileError as error:
        raise OSError(str(error)) from error
    was_copy = run_of_copy(memory.folder) != 0
    names = Names(memory.folder, was_cut=memory.was_cut or was_copy)
    try:
        if read_notice(look.root).until_ms and (names.damaged or _is_damaged(look.root)):
            text = f"{memory.folder}: the memory of open messages is damaged, so it is removed"
            log.warning("%s", f"{text}; the records in the log tell what was open")
            memory.discard()
            names.keep(())  # damaged lines would count against the next memory, too
            return None
        found = reach(memory, look.plane, names, births)
        names.pass_over(found.highest_id)
        if was_copy:
            _take_copy(look, memory, names)
        is_empty = not found.entries and not found.has_ahead
        restarts = names.ids_left < FEW_IDS and is_empty and bool(memory.header.clean)
        fault = memory.fault_of_image()
        is_whole = found.is_within and not restarts and not memory.header.failed_errno and not fault
        has_entries = found.entries > 0 if is_whole else _cut_back(look, memory, names, births, restarts=restarts)
        names.keep(found.live)
        _tell(memory, names.damaged, was_cut=memory.was_cut and not was_copy)
        if fault:
            log.warning("%s", f"{memory.folder / IMAGE}: {fault}; the segment has all, and the image is written anew")
    finally:
        names.close()
    memory.touch_header()
    memory.header.start_id = int(look.plane.watermarks.start_id)
    memory.header.marks_from = min(int(memory.header.marks_from), look.log_end)  # the log may have been cut since
    if not is_whole:
        _save(memory)
    return has_entries


def _take_copy(look: StoreLook, memory: PopMemory, names: Names) -> None:
    lowered = take_copy(look, memory, names)
    text = f"{memory.folder}: open messages are those of the former master"
    log.info("%s", f"{text}; pops and acks of its last two seconds may come again")
    if lowered:
        text = f"{memory.folder}: check points of the former master are newer than the copy in {lowered} queues"
        log.info("%s", f"{text}; the messages behind come again")


def _save(memory: PopMemory) -> None:
    """Save what was cut back: `write` may not give an offset anew that a usable image has as done."""
    try:
        memory.save_whole()
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        log.warning("%s", f"{describe(error)}; a power cut before the next snapshot takes the whole memory of POP")


def _cut_back(
    look: StoreLook, memory: PopMemory, names: Names, births: Mapping[str, int], *, restarts: bool
) -> bool:  # fmt: skip
    """Open the windows, and cut them back. True if entries are left."""
    damaged = ffi.new("uint64_t *")
    windows = lib.rmq_pop_windows_open(memory.pages, memory.layout, wall_ms(), monotonic_ms(), damaged)
    if windows == ffi.NULL:
        raise MemoryError("no memory to read the windows of POP")
    try:
        done = clamp(windows, look.plane, names, births)
        _tell_clamped(memory, done, int(damaged[0]))
        if restarts:
            _restart_ids(look, memory, windows, names)
        return bool(lib.rmq_pop_counts_of(windows).entries)
    finally:
        lib.rmq_pop_windows_close(windows)


def _restart_ids(look: StoreLook, memory: PopMemory, windows: object, names: Names) -> None:
    """End all windows, which hold nothing, so that ids may be used again. Marks in the log so far name no window."""
    memory.touch_header()
    memory.header.marks_from = look.log_end
    for number, _, _, _ in list(names.all()):
        place = int(lib.rmq_pop_window_place(windows, number))
        if place != NONE:  # the file still has the names of windows that have ended
            lib.rmq_pop_window_drop(windows, place)
    memory.save_whole()
    names.restart()
    log.info("%s", f"{memory.folder}: the ids of windows begin again with 1")


def _tell_clamped(memory: PopMemory, done: Clamped, damaged: int) -> None:
    """Log what consumers may notice."""
    if damaged:
        text = f"{memory.folder}: {damaged} windows and entries are damaged"
        log.warning("%s", f"{text}; groups of POP go on at their consumer offsets there")
    if done.windows:
        text = f"{memory.folder}: {done.windows} windows reached beyond their queues and were cut back"
        log.warning("%s", f"{text}; {done.messages} messages come again")
    if done.gone:
        log.info("%s", f"{memory.folder}: {done.gone} windows have no topic any more and have ended")


def _tell(memory: PopMemory, damaged_names: int, *, was_cut: bool) -> None:
    if damaged_names:
        text = f"{memory.folder}: {damaged_names} names of windows are damaged"
        log.warning("%s", f"{text}; groups of POP go on at their consumer offsets there")
    if was_cut:
        log.info("%s", f"{memory.folder}: the machine went down; the last second of pops and acks may come again")
