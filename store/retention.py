"""Deletion of old log files: by age at the configured hour, by disk ratio at any time, by force on a full disk.

`step` decides (DefaultMessageStore.CleanCommitLogService), `LogRetention` measures and unlinks. Files are deleted
oldest first, and never one that holds a byte at or behind the safe offset. Deletion is by unlink only, so mappings
keep their bytes. A file that a reader has locked stays with all behind it, except if space is freed by force. The
dispatch role deletes queue and index files after the log's min offset has moved.
"""

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ringmq.store import layout
from ringmq.store.config import StoreConfig, StoreConfigError
from ringmq.store.mapped_file import FileQueue, MappedFileCache
from ringmq.store.markers import sync_directory
from ringmq.store.segment_lock import lock_for_deletion


class RetentionSettings(Struct, frozen=True):
    """RocketMQ's settings. Ratios are fractions of the disk."""

    delete_hours: tuple[int, ...] = (4,)  # deleteWhen
    reserved_s: float = 72 * 3600.0  # fileReservedTime, hours
    delete_ratio: float = 0.75  # diskMaxUsedSpaceRatio, 10..95
    forced_ratio: float = 0.85  # diskSpaceCleanForciblyRatio, 0.30..0.85
    warning_ratio: float = 0.90  # diskSpaceWarningLevelRatio, 0.35..0.90
    may_force: bool = True  # cleanFileForciblyEnable
    files_per_round: int = 10  # deleteFileBatchMax

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "RetentionSettings":
        """Read RocketMQ properties. Ratios are clamped as stock clamps them."""

        def number(name: str, default: int) -> int:
            try:
                return int(properties.get(name, default))
            except ValueError as error:
                raise StoreConfigError(f"{name} = {properties[name]!r} is not an integer") from error

        def ratio(name: str, default: int, low: int, high: int) -> float:
            return min(max(number(name, default), low), high) / 100

        return cls(
            delete_hours=parse_delete_when(properties.get("deleteWhen", "04")),
            reserved_s=number("fileReservedTime", 72) * 3600.0,
            delete_ratio=ratio("diskMaxUsedSpaceRatio", 75, 10, 95),
            forced_ratio=ratio("diskSpaceCleanForciblyRatio", 85, 30, 85),
            warning_ratio=ratio("diskSpaceWarningLevelRatio", 90, 35, 90),
            may_force=properties.get("cleanFileForciblyEnable", "true").lower() == "true",
            files_per_round=max(1, number("deleteFileBatchMax", 10)),
        )


class LogFile(Struct, frozen=True):
    """A log file that may be deleted: it ends at or before the safe offset and is not the newest."""

    start: int
    modified_s: float


class RetentionState(Struct, frozen=True):
    """Input of `step`. `files` are oldest first. Ratios are the used fraction of the log's and the queues' disk."""

    files: tuple[LogFile, ...]
    log_disk_ratio: float
    queue_disk_ratio: float
    hour: int  # local


class RetentionEffects(Struct, frozen=True):
    """Files to delete (a prefix of the state's), and True if puts have to be refused for lack of space.

    Without `spares_readers` files that readers hold are deleted, too: the disk is nearly full.
    """

    delete: tuple[int, ...]
    disk_full: bool
    reason: str = ""
    spares_readers: bool = True


def parse_delete_when(text: str) -> tuple[int, ...]:
    """Read `deleteWhen`: hours of the day separated by `;`."""
    hours = []
    for part in text.split(";"):
        if part.strip():
            if not part.strip().isdigit() or int(part) > 23:
                raise StoreConfigError(f"deleteWhen = {text!r}: {part.strip()!r} is not an hour from 00 to 23")
            hours.append(int(part))
    return tuple(hours)


def step(settings: RetentionSettings, state: RetentionState, now_s: float) -> RetentionEffects:
    """Decide one round."""
    worst = max(state.log_disk_ratio, state.queue_disk_ratio)
    disk_full = worst > settings.warning_ratio
    is_forced = worst > settings.forced_ratio or disk_full
    if state.hour in settings.delete_hours:
        reason = f"hour {state.hour:02d}"
    elif is_forced or worst > settings.delete_ratio:
        reason = f"disk {worst:.0%} used"
    else:
        return RetentionEffects((), disk_full)
    any_age = is_forced and settings.may_force
    delete = []
    for file in state.files[: settings.files_per_round]:
        if not any_age and now_s < file.modified_s + settings.reserved_s:
            break
        delete.append(file.start)
    return RetentionEffects(tuple(delete), disk_full, f"{reason}, any age" if any_age else reason, not any_age)


def used_ratio(path: Path) -> float:
    """Return the used part of a file system as stock computes it: whole per cents, rounded up. -1 if unknown."""
    try:
        status = os.statvfs(path)
    except FileNotFoundError:
        return -1.0
    used, usable = (status.f_blocks - status.f_bfree) * status.f_frsize, status.f_bavail * status.f_frsize
    return math.ceil(used * 100 / (used + usable)) / 100 if used + usable else -1.0


def disk_ratios(config: StoreConfig, ratio: Callable[[Path], float] = used_ratio) -> tuple[float, float]:
    """Return the used parts that rounds compare with the limits: of the log's emptiest disk, and of the queues'."""
    log = min(ratio(directory) for directory in config.commit_log_directories)
    return log, ratio(config.root / layout.CONSUME_QUEUE)


class RetentionOutcome(Struct, frozen=True):
    """Result of a round: deleted paths, the log's new min offset (None = unchanged), lack of space, and the reason.

    `held` is the file at which the round stopped because a reader has locked it.
    """

    deleted: tuple[Path, ...]
    min_offset: int | None
    disk_full: bool
    reason: str
    held: Path | None = None


class LogRetention:
    """Runs rounds for one log. Used by one thread of the flush worker.

    `safe_offset` returns the offset up to which everything is on disk and dispatched.
    """

    def __init__(
        self,
        config: StoreConfig,
        settings: RetentionSettings,
        safe_offset: Callable[[], int],
        ratio: Callable[[Path], float] = used_ratio,
    ) -> None:
        self._config = config
        self.settings = settings
        """The settings, which may be replaced between two rounds."""
        self._safe_offset = safe_offset
        self._ratio = ratio

    def run(
        self,
        now_s: float,
        *,
        publish: Callable[[int], None] | None = None,
        keep_open: Callable[[int], None] = os.close,
    ) -> RetentionOutcome:
        """Decide and delete.

        `publish(min_offset)` is called before the first file goes, so that no reader looks for it. `keep_open` gets a
        descriptor of each deleted file, and closes it. The last process to close a file frees its blocks and pages,
        which takes 0.3 s for 1 GiB. It should not be a process that serves clients.

        Missing files are ignored. Other OSErrors end the round and are raised.
        """
        files = FileQueue(self._config.commit_log_directories, self._config.commit_log_file_bytes, MappedFileCache(1))
        effects = step(self.settings, self._poll(files, now_s), now_s)
        with contextlib.ExitStack() as locks:
            starts, held = list(effects.delete), None
            if effects.spares_readers:
                starts, held = _lock_against_readers(files, effects.delete, locks)
            if not starts:
                return RetentionOutcome((), None, effects.disk_full, effects.reason, held)
            min_offset = starts[-1] + files.file_bytes
            if publish is not None:
                publish(min_offset)
            deleted = []
            for start in starts:
                path = files.path(start)
                with contextlib.suppress(FileNotFoundError):
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        files.unlink(start)
                    finally:
                        keep_open(descriptor)
                    deleted.append(path)
        for directory in {path.parent for path in deleted}:
            sync_directory(directory)
        return RetentionOutcome(tuple(deleted), min_offset, effects.disk_full, effects.reason, held)

    def _poll(self, files: FileQueue, now_s: float) -> RetentionState:
        safe = self._safe_offset()
        old = []
        for start in files.starts[:-1]:
            if start + files.file_bytes > safe:
                break
            try:
                old.append(LogFile(start, files.path(start).stat().st_mtime))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
        return RetentionState(tuple(old), *disk_ratios(self._config, self._ratio), time.localtime(now_s).tm_hour)


def _lock_against_readers(
    files: FileQueue, starts: Sequence[int], locks: contextlib.ExitStack
) -> tuple[list[int], Path | None]:
    """Return the leading files without a reader, locked until `locks` is closed, and the first file with a reader."""
    free: list[int] = []
    for start in starts:
        path = files.path(start)
        try:
            descriptor = lock_for_deletion(path)
        except FileNotFoundError:
            free.append(start)
            continue
        if descriptor is None:
            return free, path
        locks.callback(os.close, descriptor)
        free.append(start)
    return free, None
