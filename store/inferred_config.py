"""Settings of a store without its broker.conf, inferred from its files."""

import dataclasses
import itertools
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ringmq.store import layout
from ringmq.store.config import StoreConfig, StoreConfigError
from ringmq.store.index_file import IndexFile, index_file_bytes, index_paths
from ringmq.store.mapped_file import StoreLoadError

PROBED_BYTES_MAX = 16 << 20
LOOKED_AT_MAX = 64
"""Files that are looked at for the size of all."""
_INDEX_BYTES_MIN = index_file_bytes(1, 2)
SIZE_PROPERTIES = {
    "commit_log_file_bytes": "mappedFileSizeCommitLog",
    "consume_queue_file_bytes": "mappedFileSizeConsumeQueue",
    "batch_consume_queue_file_bytes": "mapperFileSizeBatchConsumeQueue",
    "index_slots": "maxHashSlotNum",
    "index_entries": "maxIndexNum",
}


def with_sizes_of_files(given: StoreConfig) -> StoreConfig:
    """Return `given` with the sizes of the log files and queue files that exist. Index sizes stay."""
    sizes = _sizes_of_files(given.root, given.commit_log_directories)
    found = {field: size for field, size in sizes.items() if size}
    return dataclasses.replace(given, **found)  # type: ignore[arg-type]


def with_index_sizes_of_files(given: StoreConfig) -> StoreConfig:
    """Return `given`, with other index sizes if the first index file has another length and shows its sizes."""
    for path in index_paths(given.root / layout.INDEX):
        size = path.stat().st_size
        if size in (0, index_file_bytes(given.index_slots, given.index_entries)):
            continue
        sizes = infer_index_sizes(path)
        if size == index_file_bytes(layout.INDEX_SLOTS, layout.INDEX_ENTRIES):
            sizes = layout.INDEX_SLOTS, layout.INDEX_ENTRIES
        if sizes is not None:
            return dataclasses.replace(given, index_slots=sizes[0], index_entries=sizes[1])
    return given


def different_sizes(found: StoreConfig, given: StoreConfig) -> dict[str, str]:
    """Return the size properties whose values differ, with the values of `found`."""
    pairs = ((name, getattr(found, field), getattr(given, field)) for field, name in SIZE_PROPERTIES.items())
    return {name: str(value) for name, value, other in pairs if value != other}


def config_for_folder(root: Path, **known: object) -> StoreConfig:
    """Return a config for readers: file sizes from the files, index sizes if they can be inferred.

    An index file's length does not show its division into slots and entries. Small files are tried out. Large ones
    have the default sizes, or need `index_slots` and `index_entries` among `known`.
    """
    if "index_slots" not in known:
        for path in index_paths(root / layout.INDEX):
            sizes = infer_index_sizes(path)
            if sizes is not None:
                known = {**known, "index_slots": sizes[0], "index_entries": sizes[1]}
                break
    return config_without_index(root, **known)


def config_without_index(root: Path, **known: object) -> StoreConfig:
    """Return a config for readers that open no index file. `known` overrides single fields. Raises StoreLoadError."""
    logs = known.get("commit_log_directories") or (root / layout.COMMIT_LOG,)
    assert isinstance(logs, tuple)
    sizes = {field: size for field, size in _sizes_of_files(root, logs).items() if size}
    try:
        return StoreConfig(root=root, **{**sizes, **known})  # type: ignore[arg-type]
    except StoreConfigError as error:
        raise StoreLoadError(f"{root}: the first file has an impossible size ({error}): name the right one") from error


def _sizes_of_files(root: Path, logs: tuple[Path, ...]) -> dict[str, int]:
    """Return the size of log files and queue files by field of StoreConfig, 0 where there is no file."""
    return {
        "commit_log_file_bytes": _usual_size(logs, "*"),
        "consume_queue_file_bytes": _usual_size(
            (root / layout.CONSUME_QUEUE,), "*/*/*", layout.CONSUME_QUEUE_UNIT.size
        ),
        "batch_consume_queue_file_bytes": _usual_size(
            (root / layout.BATCH_CONSUME_QUEUE,), "*/*/*", layout.BATCH_UNIT.size
        ),
    }


def _usual_size(directories: tuple[Path, ...], pattern: str, unit_bytes: int = 1) -> int:
    """Return the size that most of the first files with names of 20 digits have, 0 without one of whole units.

    Files may be truncated. Of two sizes that are equally frequent the larger one counts.
    """
    sizes = (size for size in _sizes(directories, pattern) if size % unit_bytes == 0)
    found = Counter(itertools.islice(sizes, LOOKED_AT_MAX))
    return max(found, key=lambda size: (found[size], size), default=0)


def _sizes(directories: tuple[Path, ...], pattern: str) -> Iterator[int]:
    for directory in directories:
        for path in directory.glob(pattern):
            if len(path.name) == 20 and path.name.isdigit() and path.is_file() and path.stat().st_size:
                yield path.stat().st_size


def check_index_sizes(config: StoreConfig) -> None:
    """Raise StoreLoadError for an index file that has neither the configured length nor that of other sizes."""
    for path in index_paths(config.root / layout.INDEX):
        size, wanted = path.stat().st_size, index_file_bytes(config.index_slots, config.index_entries)
        if size not in (0, wanted) and not is_of_other_sizes(path):
            raise StoreLoadError(f"{path} has {size} bytes, not {wanted}: the next start makes the index again")


def is_of_other_sizes(path: Path) -> bool:
    """True if an index file that lacks the configured length is whole under other sizes."""
    return (
        path.stat().st_size == index_file_bytes(layout.INDEX_SLOTS, layout.INDEX_ENTRIES)
        or infer_index_sizes(path) is not None
    )


def infer_index_sizes(path: Path) -> tuple[int, int] | None:
    """Return (slots, entries) of an index file with content, None if they cannot be inferred."""
    size = path.stat().st_size
    if size < _INDEX_BYTES_MIN or not path.is_file():
        return None
    if size == index_file_bytes(layout.INDEX_SLOTS, layout.INDEX_ENTRIES) or size > PROBED_BYTES_MAX:
        return None
    data = path.read_bytes()
    _, _, begin_offset, _, slots_used, next_number = struct.unpack_from(">qqqqii", data)
    if next_number <= 1:
        return None
    for slots in range(1, (size - 40) // 4):
        entries, rest = divmod(size - 40 - 4 * slots, 20)
        first = 40 + 4 * slots + 20
        if rest or entries < max(2, next_number) or first + 12 > size:
            continue
        key_hash, offset = struct.unpack_from(">iq", data, first)
        if offset != begin_offset or key_hash < 0:
            continue
        used = sum(value != 0 for (value,) in struct.iter_unpack(">i", data[40 : 40 + 4 * slots]))
        if used == slots_used and IndexFile(path, slots, entries).unreachable_entries() == 0:
            return slots, entries
    return None
