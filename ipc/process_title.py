"""The name of this process for `ps`, `top` and `pgrep`: `ringmq WORKER BROKER`, in the place of its arguments.

The thread's name, which `top` and `pgrep` show, is `ringmq-WORKER`, cut after 15 bytes.
"""

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ringmq.remoting.printable import printable

_PR_SET_NAME = 15
_ARGUMENTS, _ENVIRONMENT = 45, 47
"""Fields 48 and 50 of /proc/PID/stat, counted from field 3, the first behind the name. Each is an area's start, and its
end is the next one."""


def set_title(worker: str, broker: str) -> None:
    """Name this process. The title is cut to the room of its arguments. Where /proc does not say where that is, only
    the thread's name is set."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"ringmq-{worker}".encode()[:15], 0, 0, 0)
    _overwrite(_ARGUMENTS, lambda room: title_bytes(f"ringmq {worker} {broker}".rstrip(), room))


def set_command(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Show the command line and the environment of another program, as if this process had been started by exec.

    Both are cut to their room. No part of this process may still use the strings of its first environment.
    """
    variables = b"".join(f"{name}={value}\0".encode("utf-8", "surrogateescape") for name, value in environment.items())
    _overwrite(_ARGUMENTS, lambda room: title_bytes(" ".join(words), room))
    _overwrite(_ENVIRONMENT, lambda room: variables[:room].ljust(room, b"\0"))


def _overwrite(area: int, content: Callable[[int], bytes]) -> None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[area]), int(fields[area + 1])
        if start < end:
            ctypes.memmove(start, content(end - start), end - start)


def title_bytes(title: str, room: int) -> bytes:
    """The title for an area of so many bytes.

    The kernel takes the area for a title that ends at the first 0 if the last byte of the area is not 0. Otherwise all
    the zeros behind the title would count as arguments, too (proc(5), `cmdline`).
    """
    text = printable(title).encode("utf-8", "replace")
    return text[: max(0, room - 2)].ljust(room - 1, b"\0") + b"\x01"
