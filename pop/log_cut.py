"""POP's memory when a start cuts the log by an order (`ringmq ha salvage`, a slave that follows a new master)."""

from __future__ import annotations

from pathlib import Path

from ringmq.native import ffi, lib
from ringmq.pop.image_file import number_header
from ringmq.pop.log_place import LogPlace
from ringmq.pop.memory import PopMemory


def forget_behind(root: Path, log_offset: int) -> None:
    """Forget what rests on the log behind an offset: places in the header, and copies in retry topics. Raises OSError.

    Windows are cut back later in this start, when the ends of the queues are known (`clamp.py`).
    """
    memory = PopMemory.load(root)
    if memory is None:
        return
    try:
        header = memory.header
        memory.touch_header()
        lib.rmq_pop_forget_copies(memory.pages, memory.layout)
        (flushed, *_), (end, *_) = LogPlace.of(header).both
        place = ffi.new("struct rmq_pop_log_place *")  # no bytes agree with every log that reaches there
        place.flushed_offset, place.end_offset = min(flushed, log_offset), min(end, log_offset)
        header.copies_from = min(int(header.copies_from), log_offset)
        number_header(header, place[0])
        memory.save_whole()
    finally:
        memory.close(clean=False)
