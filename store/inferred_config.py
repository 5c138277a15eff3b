"""Settings of a store without its broker.conf, inferred from its files."""

import struct
from pathlib import Path

from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.index_file import IndexFile, index_paths

PROBED_BYTES_MAX = 16 << 20


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
    """Return a config for readers that open no index file. `known` overrides single fields."""
    logs = known.get("commit_log_directories") or (root / layout.COMMIT_LOG,)
    assert isinstance(logs, tuple)
    queues, batch_queues = (root / layout.CONSUME_QUEUE,), (root / layout.BATCH_CONSUME_QUEUE,)
    sizes: dict[str, object] = {
        "commit_log_file_bytes": _first_size(logs, "*") or layout.COMMIT_LOG_FILE_BYTES,
        "consume_queue_file_bytes": _first_size(queues, "*/*/*") or layout.CONSUME_QUEUE_FILE_BYTES,
        "batch_consume_queue_file_bytes": _first_size(batch_queues, "*/*/*") or layout.BATCH_FILE_BYTES,
    }
    return StoreConfig(root=root, **{**sizes, **known})  # type: ignore[arg-type]


def _first_size(directories: tuple[Path, ...], pattern: str) -> int:
    """Return the size of the first non-empty file with a name of 20 digits, 0 without one."""
    for directory in directories:
        for path in directory.glob(pattern):
            if len(path.name) == 20 and path.name.isdigit() and path.stat().st_size:
                return path.stat().st_size
    return 0


def infer_index_sizes(path: Path) -> tuple[int, int] | None:
    """Return (slots, entries) of an index file with content, None if they cannot be inferred."""
    size = path.stat().st_size
    if size in (0, 40 + 4 * layout.INDEX_SLOTS + 20 * layout.INDEX_ENTRIES) or size > PROBED_BYTES_MAX:
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
