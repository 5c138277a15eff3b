"""POP's memory when a start cuts the log by an order (`ringmq ha salvage`), or goes on with the log of a master."""

from __future__ import annotations

import logging
from pathlib import Path

from ringmq.native import ffi, lib
from ringmq.pop.copy_mark import remove_image, run_of_copy
from ringmq.pop.image_file import FOLDER, IMAGE, number_header
from ringmq.pop.log_place import LogPlace
from ringmq.pop.memory import PopMemory, remove_lasting

log = logging.getLogger(__name__)


def forget_behind(root: Path, log_offset: int) -> None:
    """Forget what rests on the log behind an offset: places in the header, and copies in retry topics. Raises OSError.

    Windows are cut back later in the start of a master, when the ends of the queues are known (`clamp.py`). A slave
    gets another copy of its master's memory.
    """
    if run_of_copy(root / FOLDER):
        remove_image(root / FOLDER)
        return
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


def forget_as_slave(root: Path) -> None:
    """Remove this broker's own memory: the log goes on with records of another master. The copy of a master's memory
    stays. Raises OSError.

    Windows would have these records as done where the log was cut and has grown again. Marks of the other master's
    copies would name windows of this memory.
    """
    folder = root / FOLDER
    if not folder.exists():
        return
    if (folder / IMAGE).exists() and not run_of_copy(folder):
        text = "this broker is a slave now, and gets the open messages of its master; its own ones are forgotten"
        log.warning("%s", f"{folder}: {text}")
        remove_image(folder)
    remove_lasting(root)
