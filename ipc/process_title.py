"""The name of this process for `ps`, `top` and `pgrep`: `ringmq WORKER BROKER`, in the place of its arguments.

The thread's name, which `top` and `pgrep` show, is `ringmq-WORKER`, cut after 15 bytes.
"""

import contextlib
import ctypes
from pathlib import Path

from ringmq.remoting.printable import printable

_PR_SET_NAME = 15
_ARG_START, _ARG_END = 45, 46
"""Fields 48 and 49 of /proc/PID/stat, counted from field 3, the first behind the name."""


def set_title(worker: str, broker: str) -> None:
    """Name this process. The title is cut to the room of its arguments. Where /proc does not say where that is, only
    the thread's name is set."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"ringmq-{worker}".encode()[:15], 0, 0, 0)
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if start < end:
            ctypes.memmove(start, title_bytes(f"ringmq {worker} {broker}".rstrip(), end - start), end - start)


def title_bytes(title: str, room: int) -> bytes:
    """The title for an area of so many bytes.

    The kernel takes the area for a title that ends at the first 0 if the last byte of the area is not 0. Otherwise all
    the zeros behind the title would count as arguments, too (proc(5), `cmdline`).
    """
    text = printable(title).encode("utf-8", "replace")
    return text[: max(0, room - 2)].ljust(room - 1, b"\0") + b"\x01"
