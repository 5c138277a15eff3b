"""Memory of a virtual machine that the host has taken back: its first touch costs ten times what a copy does.

A guest reports free pages to its host, which drops them and gives them again at the first touch. A row that fills new
pages of the log then measures the host. So memory is touched before a run, and whether it can be lost again is told
among the circumstances.
"""

import ctypes
import mmap
from pathlib import Path

REPORTING_ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
LARGEST_ORDER = 10  # of the kernel's page allocator: 4 MiB
PIECE_BYTES = 256 << 20
LEAVE_BYTES = 2 << 30
MADV_POPULATE_WRITE = 23  # Linux 5.14


def free_pages_go_back(parameter: Path = REPORTING_ORDER) -> bool:
    """Whether free pages are reported to a host."""
    try:
        return int(parameter.read_text()) <= LARGEST_ORDER
    except (OSError, ValueError):
        return False


def free_bytes(meminfo: str) -> int:
    """Memory that holds nothing, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    raise ValueError("/proc/meminfo has no line MemFree")


def touch(size: int) -> int:
    """Touch so much new memory and give it back; bytes touched. OSError when the kernel refuses."""
    if size < PIECE_BYTES:
        return 0
    size -= size % PIECE_BYTES
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        first = ctypes.c_char.from_buffer(area)
        try:
            for at in range(0, size, PIECE_BYTES):
                if madvise(ctypes.addressof(first) + at, PIECE_BYTES, MADV_POPULATE_WRITE):
                    raise OSError(ctypes.get_errno(), "memory cannot be touched before the run")
        finally:
            del first  # or the area could not be unmapped
    return size


def touch_free_memory() -> int:
    """Touch what is free, but for 2 GiB; bytes touched."""
    return touch(free_bytes(Path("/proc/meminfo").read_text()) - LEAVE_BYTES)
