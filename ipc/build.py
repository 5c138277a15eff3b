"""The build that is installed: names, sizes and times of the files of the package `ringmq`, as they are now on disk."""

import os
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

_SUFFIXES = (".py", ".so")
WITHOUT_WORKERS = frozenset({"client", "loadtest", "spark_bridge", "testing"})
"""Large packages that no process of a broker loads while it serves."""


def installed_build() -> str:
    """A checksum over `installed_files`. It takes a few milliseconds, so no file is read."""
    return build_of(installed_files())


def installed_files() -> dict[str, str]:
    """Path -> size and time of each module."""
    found = {}
    for root in import_module("ringmq").__path__:
        for folder, folders, names in os.walk(root, followlinks=True):  # a checkout is a folder of links
            skipped = WITHOUT_WORKERS if folder == root else ()
            folders[:] = [name for name in folders if name != "__pycache__" and name not in skipped]
            for name in names:
                if name.endswith(_SUFFIXES):
                    path = str(Path(folder, name))
                    found[path] = size_and_time(path)
    return found


def build_of(files: Mapping[str, str]) -> str:
    """The checksum of a build with these files."""
    text = "\n".join(f"{path} {files[path]}" for path in sorted(files)).encode("utf-8", "surrogateescape")
    return f"{len(files)}-{zlib.crc32(text):08x}-{zlib.adler32(text):08x}"  # hashlib loads OpenSSL, 9 ms


def size_and_time(path: str) -> str:
    """Size and time of a file's last change, as text."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:  # an upgrade is replacing it
        return "is gone"
    return f"{status.st_size} {status.st_mtime_ns}"
