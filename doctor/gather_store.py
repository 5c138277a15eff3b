"""Facts about a store folder. Nothing is written, and a live broker is not disturbed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.file_role import FirstRole, difference, owner_of
from ringmq.doctor.facts import RoleFacts, StoreFacts, TailFacts
from ringmq.doctor.look import looks as guests_looks
from ringmq.ipc.guests import guests
from ringmq.ipc.named_functions import function_of
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.watermark import read_watermarks, store_is_locked
from ringmq.native import lib
from ringmq.store import markers, record
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError
from ringmq.store.inferred_config import check_index_sizes, different_sizes, with_sizes_of_files
from ringmq.store.log_loss import LostLogError, check_log
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.record_values import counted
from ringmq.store.recovery_truncate import CUT_FOLDER
from ringmq.store.salvage import salvage_files
from ringmq.store.store_format import StoreFormatError, read_format
from ringmq.store.tenure_file import read_tenure
from ringmq.store.unsupported import find_unsupported

TAIL_BYTES = 8 << 20
T = TypeVar("T")


def gather_store(config: StoreConfig) -> StoreFacts:
    """Return facts about the store's root and the newest part of its log."""
    root = config.root
    try:
        if not root.is_dir():
            return StoreFacts(str(root), exists=False)
        os.scandir(root).close()
        facts = StoreFacts(
            str(root),
            exists=True,
            is_writable=_is_writable(root),
            is_locked=None,
            has_abort=markers.has_abort(root),
            foreign_files=_foreign_files(root),
        )
    except OSError as error:
        return StoreFacts(str(root), exists=False, error=str(error))
    looks = _Looks()
    try:
        facts = dataclasses.replace(facts, is_locked=looks.at(lambda: store_is_locked(root), None))
        facts = dataclasses.replace(
            facts,
            is_abort_of_stock=looks.at(lambda: markers.is_abort_of_stock(root), False),
            failed_cause=looks.at(lambda: markers.failed_cause(root), None),
            cut_files=looks.at(lambda: sum(map(_entries, _cut_folders(config))), 0),
            salvage_files=looks.at(lambda: len(salvage_files(root)), 0),
            format_number=looks.at(lambda: read_format(root), None),
            of_guests=_of_guests(root, looks),
        )
        facts = _with_log(facts, config, looks)
    except LostLogError as error:
        facts = dataclasses.replace(facts, error=error.fault, remedy=error.remedy)
    except (StoreLoadError, StoreFormatError, ConfigFileError, OSError) as error:
        facts = dataclasses.replace(facts, error=str(error))
    return dataclasses.replace(facts, denied=tuple(dict.fromkeys(looks.denied)))


class _Looks:
    """Looks at parts of a store. What this user may not read is named in `denied`, and leaves a fact unknown."""

    def __init__(self) -> None:
        self.denied: list[str] = []

    def at(self, look: Callable[[], T], unknown: T) -> T:
        try:
            return look()
        except (PermissionError, ConfigFileError) as error:
            cause = error if isinstance(error, PermissionError) else error.__cause__
            if not isinstance(cause, PermissionError):
                raise
            self.denied.append(f"{cause.filename or 'shared memory'}: {cause.strerror}")
            return unknown


def _is_writable(root: Path) -> bool:
    return os.access(root, os.W_OK | os.X_OK, effective_ids=True)


def _of_guests(root: Path, looks: _Looks) -> dict[str, Any]:
    gathered = {name: looks.at(partial(look.gather, root), None) for name, look in guests_looks()}
    return {name: facts for name, facts in gathered.items() if facts is not None}


def _foreign_files(root: Path) -> int:
    """Return the number of entries of other users.

    root, and a user who may not write there, count the entries that do not belong to the folder's owner, such as a
    service's user.
    """
    owner = root.stat().st_uid if not os.geteuid() or not _is_writable(root) else os.geteuid()
    return sum(entry.stat(follow_symlinks=False).st_uid != owner for entry in os.scandir(root))


def _cut_folders(config: StoreConfig) -> set[Path]:
    """Return the folders in which recoveries save truncated bytes.

    Earlier versions saved them beside the log's folder.
    """
    return {place / CUT_FOLDER for place in (config.root, config.commit_log_directories[0].parent)}


def _entries(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def _with_log(facts: StoreFacts, config: StoreConfig, looks: _Looks) -> StoreFacts:
    return looks.at(lambda: _log_facts(facts, config, looks), facts)


def _log_facts(facts: StoreFacts, config: StoreConfig, looks: _Looks) -> StoreFacts:
    """Look at the log. Without the words of a broker that has the store open, or may have, the log's end is unknown."""
    marks = None if facts.is_locked is None else looks.at(lambda: read_watermarks(config.root), None)
    may_run = marks is None or marks.live
    own = with_sizes_of_files(config) if may_run else config
    store = MessageStore(own)
    if not may_run:
        check_log(store)
    store.commit_log.files.check_sizes()
    if own.message_index:
        check_index_sizes(own)
    if may_run:
        sizes = ", ".join(f"{name}={value}" for name, value in different_sizes(own, config).items())
        facts = dataclasses.replace(facts, other_sizes=sizes)
    if marks is None:
        return facts
    if marks.live:
        return dataclasses.replace(
            facts,
            tail=read_tail(store, marks.append_offset),
            flush_lag_bytes=marks.append_offset - marks.flushed_offset,
            dispatch_lag_bytes=marks.append_offset - marks.dispatched_offset,
        )
    if facts.is_locked:  # a stock broker: its queues grow under us
        return facts
    return dataclasses.replace(
        facts, tail=read_tail(store, store.log_end()), unsupported=tuple(find_unsupported(config)),
        guest_faults=tuple(_guest_faults(store, looks)),
    )  # fmt: skip


def _guest_faults(store: MessageStore, looks: _Looks) -> Iterator[tuple[str, str]]:
    nothing: list[tuple[str, str]] = []
    for guest in guests():
        if guest.damage:
            found = looks.at(partial(function_of(guest.damage), store), nothing)
            yield from ((guest.name, f"{place}: {fault}") for place, fault in found)


def running_broker(root: Path) -> int:
    """Return the main process of the broker that has this store open, 0 without one.

    A stock broker has no watermarks, and is known as the process that holds the lock.
    """
    try:
        marks = read_watermarks(root)
    except OSError:
        return 0
    return marks.owner_pid if marks.live else max(0, marks.lock_holder or 0)


def gather_role(config: BrokerConfig) -> RoleFacts:
    """Return whether the tenure file has the role of the configuration."""
    try:
        found = read_tenure(Path(config.store_path_root_dir), owner_of(config), syncs=False)
    except ConfigFileError as error:
        return RoleFacts(fault=str(error))
    return RoleFacts(found.note if found.record is None else difference(FirstRole.of(config), found.record))


def runs_other_build(root: Path) -> bool:
    """Return whether the broker that has this store open is known to run another build than the installed one.

    The broker notices that when it makes a new image of its workers. The layout of its shared memory may show it, too.
    """
    try:
        plane = Plane.open(plane_name(root))
    except ValueError:
        return True
    except OSError:
        return False
    return bool(plane.role(lib.RMQ_ROLE_SUPERVISOR).flags & lib.RMQ_ROLE_REPLACED)


def read_tail(store: MessageStore, end_offset: int) -> TailFacts | None:
    """Read the records in the last 8 MiB in front of `end_offset`, checksums included. None for an empty log.

    Reading begins at a record border, which the queues know. Without a unit of a queue in that range nothing is
    found.
    """
    log = store.commit_log
    border = store.tail_border(end_offset, TAIL_BYTES)
    if border is None:
        return None
    count, at, newest = 0, border, 0
    places = log.places(border, end_offset)
    while True:
        try:
            at, size = next(places)
        except StopIteration as stop:
            reason = record.REASONS.get(stop.value.reason, "") if stop.value.offset < end_offset else ""
            damage = f"no valid record at {stop.value.offset}: {reason}" if reason else ""
            not_indexed = counted(log.impossible(border, stop.value.offset))
            return TailFacts(count, stop.value.offset - border, stop.value.offset, newest, damage, not_indexed)
        count, newest, at = count + 1, log.store_time_at(at, end_offset) or newest, at + size
