"""The copy of another replica's log that an adoption makes before it cuts the own log.

    <root>/ringmqAdoption/records        [from_offset, to_offset) of the other log, as it comes
    <root>/ringmqAdoption/config/        the own config files with the other broker's tables, for a whole log
    <root>/ringmqAdoption/complete.json  comes last: the copy is complete, checked and on disk

Until the last file exists, only this folder changes, so an interrupted adoption leaves the store as it was. From then
on the source is not needed any more, and every step can be repeated.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import asdict

from ringmq.fastjson.files import read_json_file, read_plain_file
from ringmq.store import layout, markers
from ringmq.store.adoption import AdoptionError, ReadChunk, check_front, copy_records
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache
from ringmq.store.salvage import border_below

FOLDER = "ringmqAdoption"
_RECORDS = "records"
_COMPLETE = "complete.json"
_NOT_COPIED = ("haOrder.json", "*.tmp", "*.bak")
PROGRESS_BYTES = 256 << 20


class Staged(Struct, frozen=True):
    """A complete copy: offsets of the CommitLog, both record borders. `source` is host:port of the broker."""

    from_offset: int
    to_offset: int
    source: str


def complete(root: Path, source: str, to_offset: int) -> Staged | None:
    """Return the copy of the log of `source` up to `to_offset`, None while it is incomplete."""
    try:
        staged = Staged(**read_json_file(root / FOLDER / _COMPLETE))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return staged if (staged.source, staged.to_offset) == (source, to_offset) else None


def stage(
    config: StoreConfig,
    common_offset: int,
    to_offset: int,
    source: str,
    read_chunk: ReadChunk,
    take_tables: Callable[[Path], list[str]],
    tell: Callable[[str], None],
) -> tuple[Staged, list[str]]:
    """Copy and check [the last record border at or below `common_offset`, `to_offset`) of the log of `source`.

    `take_tables` puts the tables of `source` into the config files of the given root. It is called only if nothing of
    the own log stays. `tell` gets lines about the progress. The returned lines are about tables.

    Raises AdoptionError if the source does not have all of it or the disk is too small, SalvageError, OSError. After
    an error the folder may exist, and nothing else has changed.
    """
    import shutil  # imports the compressors of archives

    from_offset = border_below(config, common_offset)
    folder = config.root / FOLDER
    discard(config.root)
    _check_room(config, from_offset, to_offset)
    check_front(config, from_offset, read_chunk)
    folder.mkdir()
    with (folder / _RECORDS).open("wb") as file:
        copy_records(config, from_offset, to_offset, read_chunk, _writer(file, from_offset, to_offset, source, tell))
        file.flush()
        os.fsync(file.fileno())
    told: list[str] = []
    if from_offset == 0:
        (config.root / layout.CONFIG).mkdir(exist_ok=True)
        ignored = shutil.ignore_patterns(*_NOT_COPIED)
        shutil.copytree(config.root / layout.CONFIG, folder / layout.CONFIG, ignore=ignored)
        told = take_tables(folder)
    staged = Staged(from_offset, to_offset, source)
    markers.sync_directory(folder)
    markers.replace_file(folder / _COMPLETE, json.dumps(asdict(staged)).encode())
    markers.sync_directory(config.root)
    return staged, told


@contextmanager
def reader(root: Path, staged: Staged) -> Iterator[ReadChunk]:
    """Yield a reader of the complete copy."""
    with (root / FOLDER / _RECORDS).open("rb") as file:
        yield lambda offset, length: os.pread(file.fileno(), length, offset - staged.from_offset)


def put_config(root: Path) -> None:
    """Move the config files with the other broker's tables to their places, each as a whole."""
    for path in sorted((root / FOLDER / layout.CONFIG).glob("*.json")):
        target, data = root / layout.CONFIG / path.name, read_plain_file(path)
        if not target.exists() or read_plain_file(target) != data:
            markers.replace_file(target, data)


def discard(root: Path) -> None:
    """Remove the copy, beginning with the file that marks it as complete."""
    if (root / FOLDER).is_dir():
        import shutil  # imports the compressors of archives

        markers.replace_or_remove(root / FOLDER / _COMPLETE, None)
        shutil.rmtree(root / FOLDER)


def _check_room(config: StoreConfig, from_offset: int, to_offset: int) -> None:
    """Raise AdoptionError unless each disk has space for the files that the adoption writes to it.

    The copy and the saved part of the own log go to the disk of the root, log files to the disks of the log.
    """
    needed: dict[Path, int] = {}

    def count(folder: Path, size: int) -> None:
        needed[folder] = needed.get(folder, 0) + size

    size, root, files = config.commit_log_file_bytes, config.root, CommitLog(config, MappedFileCache(2)).files
    count(root, to_offset - from_offset)
    new_files = -(-to_offset // size) - -(-from_offset // size)
    count(config.commit_log_directories[0], new_files * size)
    for start in files.starts:
        path = files.path(start)
        if start < from_offset < start + size:
            count(path.parent, size)  # the cut writes the kept records to a new file
            count(root, start + size - from_offset)
        elif start >= from_offset and _device(path.parent) != _device(root):
            count(root, size)
    by_disk: dict[int, list[Path]] = {}
    for folder in needed:
        by_disk.setdefault(_device(folder), []).append(folder)
    for folders in by_disk.values():
        disk = os.statvfs(_existing(folders[0]))
        free, wanted = disk.f_bavail * disk.f_frsize, sum(needed[folder] for folder in folders)
        if wanted > free:
            raise AdoptionError(
                f"the copy needs {wanted} bytes on the disk of {folders[0]}, which has {free} free: make room there",
                from_offset,
            )


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _existing(folder: Path) -> Path:
    """Return the folder, or the closest existing one above it: the new folder will be on its disk."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _writer(
    file: BinaryIO, from_offset: int, to_offset: int, source: str, tell: Callable[[str], None]
) -> Callable[[int, bytes], None]:
    next_told = PROGRESS_BYTES

    def write(offset: int, data: bytes) -> None:
        nonlocal next_told
        file.write(data)
        done = offset + len(data) - from_offset
        if done >= next_told:
            next_told += PROGRESS_BYTES
            tell(f"copied {done >> 20} of {(to_offset - from_offset) >> 20} MiB of the log of {source}")

    return write
