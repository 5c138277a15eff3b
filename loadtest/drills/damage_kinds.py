"""Ten kinds of damage of a file, at random places."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path, Path, Random], None]
"""Damages a file. The second path is an older copy, which may be missing."""


def missing(path: Path, older: Path, random: Random) -> None:
    path.unlink()


def empty(path: Path, older: Path, random: Random) -> None:
    path.write_bytes(b"")


def truncated(path: Path, older: Path, random: Random) -> None:
    os.truncate(path, random.randrange(path.stat().st_size + 1))


def too_long(path: Path, older: Path, random: Random) -> None:
    with path.open("ab") as file:
        file.write(random.randbytes(random.randint(1, 5000)))


def garbage(path: Path, older: Path, random: Random) -> None:
    path.write_bytes(random.randbytes(path.stat().st_size))


def one_bit(path: Path, older: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    if used:
        data[random.randrange(used)] ^= 1 << random.randrange(8)
        path.write_bytes(data)


def zeros(path: Path, older: Path, random: Random) -> None:
    """Of a range: a block that a disk has lost, or the whole file."""
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    begin = random.choice([0, random.randrange(used + 1)])
    end = random.choice([len(data), min(len(data), begin + 4096)])
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


def wrong_type(path: Path, older: Path, random: Random) -> None:
    path.unlink()
    path.mkdir()


def older_copy(path: Path, older: Path, random: Random) -> None:
    if older.is_file():
        shutil.copyfile(older, path)
    else:
        path.unlink()


def unreadable(path: Path, older: Path, random: Random) -> None:
    """Without effect for root."""
    path.chmod(0)


KINDS: tuple[Damage, ...] = (
    missing, empty, truncated, too_long, garbage, one_bit, zeros, wrong_type, older_copy, unreadable,
)  # fmt: skip
