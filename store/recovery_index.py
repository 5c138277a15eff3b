"""Index part of recovery: deletes files that cannot be trusted, and removes entries of cut records."""

from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.index_file import IndexFile, index_paths
from ringmq.store.markers import sync_directory


def recover_index(
    config: StoreConfig,
    append_offset: int,
    min_offset: int,
    *,
    give_up_after_ms: int | None,
    notes: list[str],
) -> int | None:
    """Repair the index files. Return the offset from which the log must be indexed again, None without an index.

    Files that end after the store time `give_up_after_ms` are deleted (unclean exit, IndexService.load). None trusts
    all files. Replaying from the returned offset is idempotent.
    """
    directory = config.root / layout.INDEX
    if not config.message_index:
        return None
    for path in index_paths(directory):
        if path.stat().st_size == 0:  # a crash between create and resize
            path.unlink()
    if give_up_after_ms is not None:
        for path in index_paths(directory):
            file = IndexFile(path, config.index_slots, config.index_entries)
            if file.header.end_time_ms > give_up_after_ms:
                path.unlink()
                notes.append(f"index file {path.name} is newer than the checkpoint: it is built again from the log")
    paths = index_paths(directory)
    for number, path in reversed(list(enumerate(paths))):
        file = IndexFile(path, config.index_slots, config.index_entries, writable=True)
        taken = 0
        if file.header.end_offset >= append_offset:
            taken = file.truncate(append_offset)
        if file.header.next_number == 1 and number > 0:
            file.prefill(IndexFile(paths[number - 1], config.index_slots, config.index_entries))
        if taken:
            notes.append(f"index file {path.name}: {taken} entries of cut records removed")
            file.sync()
        elif file.header.next_number > 1 or number == 0:
            break
    if directory.is_dir():
        sync_directory(directory)
    if not paths:
        return min_offset
    newest = IndexFile(paths[-1], config.index_slots, config.index_entries)
    return max(min_offset, newest.header.end_offset)
