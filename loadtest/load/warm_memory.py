"""Memory of a virtual machine that the host has reclaimed: its first touch costs ten times as much as a copy.

A guest reports free pages to its host, which drops them and allocates them again at the first touch. A row that fills
new pages of the log then measures the host. So memory is touched before a run. The circumstances record whether the
host can reclaim it again.
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
    """True if the kernel reports free pages to a host."""
    try:
        return int(parameter.read_text()) <= LARGEST_ORDER
    except (OSError, ValueError):
        return False


def free_bytes(meminfo: str) -> int:
    """Return the free memory in the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    raise ValueError("/proc/meminfo has no line MemFree")


def touch(size: int) -> int:
    """Touch so much new memory, release it, and return the touched bytes. Raises OSError if the kernel refuses."""
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
    """Touch all free memory but 2 GiB, and return the touched bytes."""
    return touch(free_bytes(Path("/proc/meminfo").read_text()) - LEAVE_BYTES)
