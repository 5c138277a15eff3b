"""Unpacking the golden archives, also with Debian 12's Python 3.11.2, which does not know extraction filters yet."""

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: Path, target: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extract all of `archive`, or `members` of it, into `target`. Our own archives: no member leads outside."""
    with tarfile.open(archive) as tar:
        extract_all(tar, target, members)


def extract_all(tar: tarfile.TarFile, target: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """`tar.extractall`, with the filter "data" where there is one."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(target, members, filter="data")
    else:
        tar.extractall(target, members)
