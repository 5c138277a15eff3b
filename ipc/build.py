"""The build that is installed: a fingerprint of the files of the package `ringmq`, as they are now on disk."""

import hashlib
import os
from importlib import import_module
from pathlib import Path

_SUFFIXES = (".py", ".so")
_WITHOUT_WORKERS = frozenset({"client", "loadtest", "spark_bridge", "testing"})
"""Large packages that no worker of a broker loads."""


def installed_build() -> str:
    """Names, sizes and times of all modules, as a hash. It takes a few milliseconds, so nothing is read."""
    lines = []
    for root in import_module("ringmq").__path__:
        for folder, folders, names in os.walk(root, followlinks=True):  # a checkout is a folder of links
            skipped = _WITHOUT_WORKERS if folder == root else ()
            folders[:] = [name for name in folders if name != "__pycache__" and name not in skipped]
            for name in names:
                if name.endswith(_SUFFIXES):
                    lines.append(_line(Path(folder, name)))
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _line(path: Path) -> str:
    try:
        status = path.stat()
    except FileNotFoundError:  # an upgrade is replacing it
        return f"{path} is gone"
    return f"{path} {status.st_size} {status.st_mtime_ns}"
