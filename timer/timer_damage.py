"""Damage of TimerLog and TimerWheel in a store that no broker has open. Reads only. The next start mends it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store.config_files import ConfigFileError
from ringmq.store.layout import TIMER_TOPIC, TIMER_WHEEL_FILE
from ringmq.store.message_store import MessageStore
from ringmq.store.sealed_files import load_sealed
from ringmq.timer import timer_checkpoint
from ringmq.timer.timer_checkpoint import (
    PROGRESS_FILE,
    TimerCheckpoint,
    agreed,
    contradiction,
    read_timer_checkpoint,
)
from ringmq.timer.timer_scan import ScanRange, TimerScan

FOLDER = "timerlog"
WHEEL_BYTES: int = lib.RMQ_TIMER_SLOTS * lib.RMQ_TIMER_SLOT_BYTES
PRECISION_MS = 1000
"""Of a stock broker's wheel, unless its slots have another one."""


def find_timer_damage(store: MessageStore) -> list[tuple[str, str]]:
    """Return (place, fault) of each file that is not as it was written. Raises OSError."""
    root = store.config.root
    found = read_timer_checkpoint(root)
    try:
        own = load_sealed(root, PROGRESS_FILE)
    except ConfigFileError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return [(PROGRESS_FILE, str(error))]
    if fault := contradiction(found, own):
        return [(timer_checkpoint.FILE, fault)]
    stock = agreed(found, own) or TimerCheckpoint()
    paths = sorted(path for path in (root / FOLDER).glob("[0-9]" * 20) if path.stat().st_size)
    of_files = _fault_of_files(root, paths, stock.flushed_position, has_progress=bool(own))
    if of_files is not None:
        return [of_files]
    if not paths or not (root / TIMER_WHEEL_FILE).exists():
        return []
    wanted, precision_ms = _wanted(own, stock, store.commit_log.files.end_offset)
    with _mapped(root, paths, precision_ms or PRECISION_MS) as files:
        if precision_ms is None:
            files.precision_ms = lib.rmq_timer_wheel_precision(files) or PRECISION_MS
        scan = TimerScan(files, wanted)
        for _ in scan.steps():
            pass
        scan.compare(mends=False)
        if fault := scan.log_fault(_oldest_record(store)):
            return [(FOLDER, fault)]  # the wheel is compared with a sound log alone
        return [(TIMER_WHEEL_FILE, fault)] if (fault := scan.wheel_fault()) else []


def _wanted(own: dict[str, Any], stock: TimerCheckpoint, log_end: int) -> tuple[ScanRange, int | None]:
    """The precision of the wheel is None if a stock broker has written it since: its slots tell."""
    match own:
        case {"openMs": int(open_ms), "precisionMs": int(precision_ms), "logOffset": int(log_offset)}:
            if log_offset > log_end:  # the log was cut, and slots before the open one may wait again
                return ScanRange(stock.flushed_position), precision_ms
            if stock.last_read_ms <= open_ms:
                return ScanRange(stock.flushed_position, open_ms, own.get("waitsFrom", 0)), precision_ms
    return ScanRange(stock.flushed_position, stock.last_read_ms, is_of_stock=True), None


def _fault_of_files(
    root: Path, paths: list[Path], flushed_position: int, *, has_progress: bool
) -> tuple[str, str] | None:  # fmt: skip
    """`has_progress`: RingMQ has written the files. Copies of stock's stores may come without the wheel."""
    wheel = root / TIMER_WHEEL_FILE
    if paths and has_progress and not wheel.exists():
        return TIMER_WHEEL_FILE, "is missing"
    if wheel.exists() and wheel.stat().st_size != WHEEL_BYTES:
        return TIMER_WHEEL_FILE, f"has {wheel.stat().st_size} bytes, not {WHEEL_BYTES}"
    sizes = {path.stat().st_size for path in paths}
    if len(sizes) > 1:
        return FOLDER, f"has files of {', '.join(map(str, sorted(sizes)))} bytes, they must have one size"
    begin, end = (int(paths[0].name), int(paths[-1].name) + sizes.pop()) if paths else (0, 0)
    if len(paths) > 1 and (end - begin) != len(paths) * paths[0].stat().st_size:
        return FOLDER, f"files between {paths[0].name} and {paths[-1].name} are missing"
    if end < flushed_position:
        return FOLDER, f"was on disk up to {flushed_position}, but ends at {end}"
    return None


def _oldest_record(store: MessageStore) -> int | None:
    """Return the offset of the oldest record of the timer topic."""
    queue = store.queue(TIMER_TOPIC, 0)
    if queue is None:
        return None
    end = queue.max_offset(store.commit_log.files.end_offset)
    unit = queue.unit(queue.min_offset(store.commit_log.min_offset, end))
    return None if unit is None else int(unit.commit_log_offset)


@contextmanager
def _mapped(root: Path, paths: list[Path], precision_ms: int) -> Iterator[Any]:
    """A struct rmq_timer_files over mappings that are read alone."""
    with ExitStack() as stack:

        def mapped(path: Path) -> Any:
            with path.open("rb") as file:
                data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            pointer = ffi.from_buffer("uint8_t *", data)
            stack.callback(ffi.release, pointer)
            return pointer

        table = ffi.new("uint8_t *[]", [mapped(path) for path in paths])
        chains = ffi.new("struct rmq_timer_chain[]", lib.RMQ_TIMER_SLOTS)
        yield ffi.new("struct rmq_timer_files *", {
            "wheel": mapped(root / TIMER_WHEEL_FILE), "log": table, "chains": chains, "file_count": len(paths),
            "file_bytes": paths[0].stat().st_size, "log_begin": int(paths[0].name), "precision_ms": precision_ms,
        })  # fmt: skip
