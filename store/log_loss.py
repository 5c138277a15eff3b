"""Log files that are missing or unusable: what a start refuses, what a repair does with them, and what they cost.

A start changes nothing. A repair goes on with all that is left, and gives up only what no file holds any more:

- A file of a wrong length keeps its bytes. Entries that are no file, or no file of this log, are moved away.
- A gap in front of used files becomes files with nothing but the blank that ends a log file. Readers, slaves and stock
  brokers pass over it, so all later records stay where they are.
- Without used files behind the lost ones, the log ends earlier. A slave that has the rest then proves a longer log.

Originals are in `ringmq.cut/` in the store's root. Each step can be the last one: a repeated call does the rest.
"""

import itertools
import os
import shlex
import struct
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from ringmq.store import layout, markers
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig, StoreConfigError
from ringmq.store.inferred_config import (
    SIZE_PROPERTIES,
    config_for_folder,
    different_sizes,
    with_index_sizes_of_files,
    with_sizes_of_files,
)
from ringmq.store.mapped_file import StoreLoadError, has_data
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueEnds, read_queue_ends
from ringmq.store.recovery_truncate import CUT_FOLDER
from ringmq.store.safe_files import free_name, open_to_write
from ringmq.store.salvage import copy_range, make_log_file

_BLANK = struct.Struct(">II")


class LostLogError(StoreLoadError):
    """Log files are missing or unusable. The message has file, cause and remedy. `fault` lacks the remedy."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(f"{fault}; {remedy}")
        self.fault = fault
        self.remedy = remedy


class Rewrite(Struct, frozen=True):
    """A log file of a wrong length. `kept_bytes` of it stay, and a blank follows if `is_ended`."""

    start: int
    path: Path
    kept_bytes: int
    is_ended: bool


class LogLoss(Struct):
    """The faults of the log's files, and the work that makes it a log again. Empty lists for a sound log."""

    faults: list[str] = field(default_factory=list)
    """Reasons for which a start refuses the log, each with its file."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of the log that no file holds, in ascending order."""
    strange: list[Path] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    """Starts of the missing files in front of used ones."""
    unused: list[int] = field(default_factory=list)
    """Starts of files without a byte behind lost ones."""


def is_stopped(root: Path) -> bool:
    """True if the last run ended with a clean stop. Raises OSError."""
    return not markers.has_abort(root) and markers.failed_cause(root) is None


def find_loss(store: MessageStore) -> LogLoss:
    """Compare the log's files with each other and with the bounds of the last clean stop. Writes nothing.

    Raises OSError.
    """
    log, found = store.commit_log, LogLoss()
    ends = read_queue_ends(store.config.root) if is_stopped(store.config.root) else None
    starts = _usable_starts(log, found)
    used = next((start for start in reversed(starts) if has_data(log.files.path_text(start), 0)), None)
    used_end = 0 if used is None else used + log.files.file_bytes
    _find_gaps(log, found, starts, used_end)
    has_lost_end = _find_lost_end(store, found, ends, starts, used_end)
    if found.faults:
        if has_lost_end or used_end not in starts:
            found.unused = [start for start in starts if start >= used_end]
        known_end = max(store.queue_end(), 0 if ends is None else ends.log_end)
        is_known = ends is not None and ends.log_end > ends.log_min
        _find_short_ends(log, found, used_end, known_end, is_known)
        if not has_lost_end:
            _find_strange_ends(log, found, starts, used_end, known_end, is_known)
    found.lost.sort()
    return found


def _find_lost_end(
    store: MessageStore, found: LogLoss, ends: QueueEnds | None, starts: list[int], used_end: int
) -> bool:
    """Add the end of the log that the last clean stop knows, or the queues if no log is left."""
    files = store.commit_log.files
    log_min, log_end = (ends.log_min, ends.log_end) if ends is not None else (0, 0)
    by_queues = log_end <= log_min and not starts and is_stopped(store.config.root)
    if by_queues:
        log_end = store.queue_end()
    if log_end <= log_min:
        return False
    last = (log_end - 1) // files.file_bytes * files.file_bytes
    if last in starts or used_end > last:
        return False  # another broker has gone on since: the file was deleted by retention, or a gap is in its place
    first = used_end or log_min // files.file_bytes * files.file_bytes
    path = files.directories[0] / layout.file_name(min(first, last))
    fault = f"{path} is missing or empty: when the broker stopped, the log ended at {log_end}"
    if by_queues:
        fault = f"{files.directories[0]} has no log file with records, but the queues name records up to {log_end}"
    found.faults = [fault, *(other for other in found.faults if not other.startswith(f"{path} is missing"))]
    found.lost.append((first, log_end))
    return True


def _usable_starts(log: CommitLog, found: LogLoss) -> list[int]:
    """Return the starts of the files that are to stay. Names the others, and those of a wrong length."""
    size = log.files.file_bytes
    for text in log.files.strange:
        found.faults.append(f"{text} is no file")
        found.strange.append(Path(text))
    starts = list(log.files.starts)
    for start, length, fault in log.files.faults():
        found.faults.append(fault)
        if start % size or not length:
            found.strange.append(log.files.path(start))
            starts.remove(start)
        else:
            found.rewrites.append(Rewrite(start, log.files.path(start), min(length, size), False))
    if log.files.is_newest_empty():
        starts.pop()  # a crash between create and resize: a start removes the file
    return starts


def _find_gaps(log: CommitLog, found: LogLoss, starts: list[int], used_end: int) -> None:
    """Add the files that are missing between others."""
    size = log.files.file_bytes
    for before, after in itertools.pairwise(starts):
        if after == before + size:
            continue
        path = log.files.directories[0] / layout.file_name(before + size)
        found.faults.append(f"{path} is missing: the log has a gap in front of {log.files.path(after).name}")
        if after < used_end:
            found.gaps += range(before + size, after, size)
            found.lost.append((before + size, after))


def _find_short_ends(log: CommitLog, found: LogLoss, used_end: int, known_end: int, is_known: bool) -> None:
    """Add what files of a wrong length have lost. The newest used file has lost what lies in front of `known_end`.

    Without the bounds of a clean stop, it may have lost more, unless zeros follow its last record.
    """
    size = log.files.file_bytes
    for number, rewrite in enumerate(found.rewrites):
        if rewrite.kept_bytes == size:
            continue
        file_end, kept_end = rewrite.start + size, rewrite.start + rewrite.kept_bytes
        end, is_whole = _whole_end(log, rewrite.start, kept_end)
        if is_whole:
            continue
        if file_end < used_end:
            found.rewrites[number] = Rewrite(rewrite.start, rewrite.path, end - rewrite.start, True)
            found.lost.append((end, file_end))
            continue
        is_ended = is_known or _holds(log.files.read(end, min(_BLANK.size, kept_end - end)), bytes(_BLANK.size))
        lost_end = min(known_end, file_end) if is_ended else file_end
        if end < lost_end:
            found.lost.append((end, lost_end))


def _find_strange_ends(
    log: CommitLog, found: LogLoss, starts: list[int], used_end: int, known_end: int, is_known: bool
) -> None:
    """Add what entries that are no log file have cost in front of the first file and behind the last used one.

    Without the bounds of a clean stop, such an entry may have been a full file.
    """
    size, first = log.files.file_bytes, min(starts, default=used_end)
    for start in sorted(int(path.name) for path in found.strange):
        if start % size:
            continue
        if start < first:
            found.lost.append((start, start + size))
        elif start >= used_end and (known_end > start or not is_known):
            found.lost.append((start, min(start + size, known_end) if is_known else start + size))


def _whole_end(log: CommitLog, start: int, end: int) -> tuple[int, bool]:
    """Return the end of the last whole record in a part of a file, and if the blank that ends the file follows."""
    last, at = start, start
    while True:
        places = log.places(at, end, check_crc=False)
        while True:
            try:
                position, record_bytes = next(places)
            except StopIteration as stop:
                at = stop.value.offset
                break
            last = position + record_bytes
        blank = _BLANK.pack(start + log.files.file_bytes - at, layout.MAGIC_BLANK)
        if at < end and _holds(log.files.read(at, _BLANK.size), blank):
            return last, True
        border = log.next_record(at) if at < end else None
        if border is None or border <= at:
            return last, False
        at = border


def _holds(found: memoryview | None, expected: bytes) -> bool:
    return found is not None and bytes(found) == expected


def remedy(config: StoreConfig, found: LogLoss, *, by_sizes: bool = True) -> str:
    """Return the part of a refusal that says how to go on: with other sizes if they fit, by a repair otherwise."""
    sizes = sound_sizes(config) if by_sizes else {}
    if sizes:
        return f"its files have other sizes, add to the command: {size_options(sizes)}"
    if not found.lost:
        return f"no message is lost, run: {repair_command(config)}"
    return (
        "put the file back from a copy of this store. Without a copy, to give up the messages in it, run: "
        + repair_command(config, accept_loss=True)
    )


def sound_sizes(given: StoreConfig) -> dict[str, str]:
    """Return the size properties under which the store is sound, if they differ from `given`, else an empty table.

    A file that was cut has another size, too. So no size counts under which records are missing.
    """
    try:
        found = with_index_sizes_of_files(with_sizes_of_files(given))
        settings = different_sizes(found, given)
        store = MessageStore(found)
        is_whole = settings and not find_loss(store).faults
        return settings if is_whole and store.queue_end() <= store.commit_log.files.end_offset else {}
    except (OSError, StoreLoadError, StoreConfigError):
        return {}


def size_options(settings: Mapping[str, str]) -> str:
    """Return the options of a command line for these properties."""
    return " ".join(f"--set {name}={value}" for name, value in settings.items())


def repair_command(config: StoreConfig, *, accept_loss: bool = False) -> str:
    """Return the command line of the repair, for a shell. It names the settings that the files do not show."""
    words = ["ringmq", "store", "repair", str(config.root)]
    words += ["--accept-loss"] if accept_loss else []
    settings = _hidden_sizes(config)
    if config.commit_log_directories != (config.root / layout.COMMIT_LOG,):
        settings["storePathCommitLog"] = ",".join(map(str, config.commit_log_directories))
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)


def _hidden_sizes(config: StoreConfig) -> dict[str, str]:
    try:
        shown = config_for_folder(config.root, commit_log_directories=config.commit_log_directories)
    except StoreLoadError:
        return {name: str(getattr(config, field)) for field, name in SIZE_PROPERTIES.items()}
    return different_sizes(config, shown)


def loss_remedy(config: StoreConfig, *, by_sizes: bool = True) -> str:
    """Return how to go on if the log's files refuse a start, "" if they do not. Raises OSError."""
    found = find_loss(MessageStore(config))
    return remedy(config, found, by_sizes=by_sizes) if found.faults else ""


def check_log(store: MessageStore) -> None:
    """Raise LostLogError for the first fault."""
    found = find_loss(store)
    if found.faults:
        raise LostLogError(found.faults[0], remedy(store.config, found))


def checked_loss(store: MessageStore, *, accept_loss: bool) -> LogLoss:
    """Return the work of a repair. Raises LostLogError if messages are lost, unless the loss is accepted."""
    found = find_loss(store)
    if found.lost and not accept_loss:
        raise LostLogError(found.faults[0], remedy(store.config, found))
    return found


def loss_lines(store: MessageStore, found: LogLoss) -> list[str]:
    """Return the faults, and the lost ranges with the number of messages that queues name there."""
    lines = list(found.faults)
    for first, end in found.lost:
        named = _messages_named(store, first, end)
        lines.append(
            f"given up: the log from {first} to {end}, {end - first} bytes; queues name {named} messages there"
        )
    return lines


def _messages_named(store: MessageStore, first: int, end: int) -> int:
    total = 0
    for name in store.queue_names():
        queue = store.queue(name.topic, name.queue_id)
        if queue is None or queue.files.strange or any(True for _ in queue.files.faults()):
            continue  # its entries are made again from what is left
        from_offset, to_offset = queue.offsets_at((first, end))
        total += max(0, to_offset - from_offset)
    return total


def mend(store: MessageStore, found: LogLoss) -> None:
    """Make the rest a log again. The caller holds the store's lock, and recovers it afterwards. Raises OSError."""
    import shutil  # imports the compressors of archives

    files, folder = store.commit_log.files, store.config.root / CUT_FOLDER / layout.COMMIT_LOG
    if found.strange or found.rewrites:
        folder.mkdir(parents=True, exist_ok=True)
    for path in found.strange:
        shutil.move(path, free_name(folder / path.name))
    for rewrite in found.rewrites:
        _rewrite(rewrite, files.file_bytes, folder)
    for start in found.gaps:
        make_log_file(store.config, start)
        _end_file(files.directories[0] / layout.file_name(start), 0, files.file_bytes)
    for start in found.unused:
        files.unlink(start)
    for directory in (folder, *files.directories):
        if directory.is_dir():
            markers.sync_directory(directory)


def _rewrite(rewrite: Rewrite, file_bytes: int, folder: Path) -> None:
    """Replace a file by one of the right length. A file of the log never changes its length under its readers."""
    import shutil  # imports the compressors of archives

    path = rewrite.path
    fresh = path.with_name(f"{path.name}.tmp")
    copy_range(path, 0, rewrite.kept_bytes, fresh, file_bytes)
    if rewrite.is_ended:
        _end_file(fresh, rewrite.kept_bytes, file_bytes)
    shutil.copyfile(path, free_name(folder / path.name))
    fresh.replace(path)


def _end_file(path: Path, at: int, file_bytes: int) -> None:
    """Write the blank that ends a log file, from `at` on. The few bytes of a file without room for it stay zero."""
    if file_bytes - at < _BLANK.size:
        return
    descriptor = open_to_write(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, _BLANK.pack(file_bytes - at, layout.MAGIC_BLANK), at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
