"""Small files, read within bounds: plain files alone, so many bytes, and JSON of so many levels.

A start reads these files before it serves. A pipe without a writer would keep it waiting, and a device or a file of
gigabytes would take its memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from ringmq.fastjson.reader import DEPTH_MAX, FastJsonError, is_nested_deeper

FILE_BYTES_MAX = 1 << 30
"""Limit of a file that is read as a whole: 4.8 million topics of 220 bytes, 59 million consumer offsets of 18."""
INTEGER_CHARS_MAX = 20


def read_plain_file(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Return the content of a file. Raises OSError with the path, also for another type and a larger file."""
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"it has {size} bytes, at most {bytes_max} are read", str(path))
        return file.read(size)


def read_head(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a file of any size. Raises OSError with the path, also for another type."""
    with _open(path) as file:
        return file.read(size_bytes)


def read_json_file(path: Path, bytes_max: int = FILE_BYTES_MAX) -> Any:
    """Return the value in a file of standard JSON. Raises OSError, and ValueError for anything else in the file.

    Keys are unique, numbers finite, and texts can be written as UTF-8 again.
    """
    data = read_plain_file(path, bytes_max)
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer, parse_constant=_not_finite)
    except RecursionError:
        raise _too_deep() from None
    if is_nested_deeper(value):
        raise _too_deep()
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate fails here
    return value


def _open(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is opened without its writer
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "it is no plain file", str(path))
    return os.fdopen(descriptor, "rb")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise FastJsonError(f"the key {double[:64]!r} occurs twice in an object")
    return found


def _integer(text: str) -> int:
    if len(text) > INTEGER_CHARS_MAX:
        raise FastJsonError(f"the number {text[:16]}... has {len(text)} digits, at most {INTEGER_CHARS_MAX} are read")
    return int(text)


def _not_finite(text: str) -> Any:
    raise FastJsonError(f"{text} is no number")


def _too_deep() -> FastJsonError:
    return FastJsonError(f"nested deeper than {DEPTH_MAX} levels")
