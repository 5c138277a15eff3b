"""Control's config files. A changed table is written before the answers to its changes are sent; consumer offsets are
written periodically.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.turns import Steps, TurnClock, finish
from ringmq.broker.tables import client_names, groups, offsets, request_modes, topics
from ringmq.broker.tables.client_names import ClientNames
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import CommitKey, OffsetTable
from ringmq.broker.tables.protocols import LogState, StoreProtocol
from ringmq.broker.tables.request_modes import RequestModeTable
from ringmq.broker.tables.topics import TopicTable
from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, persist_parts, persist_text, read_standard_json
from ringmq.store.pending_deletions import read_deletions, write_deletions
from ringmq.store.topic_start_offsets import read_start_offsets, within, write_start_offsets
from ringmq.store.write_hold import HeldFor, write_hold

SLAVE_COMMITS_FILE = "ringmqSlaveCommits.json"
SAVE_MS = 5
"""Time of a turn for the text of consumer offsets."""
SMALL = 2000
"""Topics that are written at once."""
REMOVE_WITHIN_S = 0.05
"""Time of a tick for the queues of deleted topics. Requests wait meanwhile."""


class HoldOnWrites(Protocol):
    """The part of replication's state that has a file (`broker.replication.state`)."""

    dirty: bool

    @property
    def divergences(self) -> Mapping[Any, Any]:
        """The slaves for which writes are held. The values are structs with the fields of `HeldFor`."""


class Saved(Struct, frozen=True):
    """The parts of the broker that have files."""

    live: LiveConfig
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    modes: RequestModeTable
    client_names: ClientNames
    deletions: Deletions
    hold: HoldOnWrites
    store: StoreProtocol


def read_client_names(root: Path) -> dict[str, list[str]]:
    """Return the topics and groups that clients have created, {} without a file. Raises ConfigFileError."""
    path = root / layout.CONFIG / client_names.FILE
    try:
        found = read_standard_json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict) or not all(isinstance(names, list) for names in found.values()):
        raise ConfigFileError(f"{path}: holds no lists of topics and groups", [path])
    return found


def read_slave_commits(root: Path) -> list[CommitKey]:
    """Return the offsets that a slave's master does not know yet, none without a file. Raises ConfigFileError."""
    path = root / layout.CONFIG / SLAVE_COMMITS_FILE
    try:
        return [(str(group), str(topic), int(queue_id)) for group, topic, queue_id in read_standard_json(path)]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise ConfigFileError(f"{path}: holds no list of group, topic and queue: {error}", [path]) from error


class Persistence:
    """Writes `<root>/config`. Every method raises OSError. A table that could not be written stays dirty."""

    def __init__(self, root: Path, saved: Saved, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._saved = saved
        self._offsets_saved_ms = 0
        self._slave_commits: list[CommitKey] = []
        self._deletions: frozenset[str] = frozenset()
        self._start_offsets: dict[str, int] = {}
        self._saving_tables = False
        self._deletions_saved: frozenset[str] = frozenset()
        """Topics that had been deleted when the newest topics.json was begun."""
        self._turn_clock = TurnClock()
        self._saving: tuple[Steps[str], int] | None = None
        """Steps to the text of the offsets, and the erasures that it contains."""
        self._unwritten = False
        """True if `OffsetTable.dirty` is reset and the file lacks some of its offsets."""
        self._erasures_saved = 0

    @property
    def tables_dirty(self) -> bool:
        """True if a table that `save_tables` writes has changed."""
        saved = self._saved
        tables = (saved.topics, saved.groups, saved.modes, saved.hold)
        is_dirty = any(table.dirty for table in tables) or self._erasures_saved < saved.offsets.erasures_to_save
        return is_dirty or saved.deletions.topics() != self._deletions

    def save_tables(self) -> None:
        """Save the changed ones of: hold on writes, deletions, clients' names, topics, groups, request modes, consumer
        offsets for which an answer waits. It takes as long as it must."""
        finish(self.saving_tables())

    def saving_tables(self) -> Steps[bool]:
        """`save_tables` in steps. Tables that change meanwhile are dirty again. Tables that cannot be written stay
        dirty."""
        saved = self._saved
        deleted = saved.deletions.topics()
        self.save_hold()
        self._save_deletions(deleted)  # a topic that no file names would keep its queues for ever
        self._save_client_names()  # a name that this file lacks would be an administrator's after a kill
        self._saving_tables = True
        try:
            tables: tuple[tuple[TopicTable | GroupTable | RequestModeTable, str], ...] = (
                (saved.topics, topics.FILE),
                (saved.groups, groups.FILE),
                (saved.modes, request_modes.FILE),
            )
            for table, file in tables:
                if table.dirty:
                    yield from self._saving_table(table, file)
        finally:
            self._saving_tables = False
        self._deletions_saved = deleted
        while self._erasures_saved < saved.offsets.erasures_to_save and not self._erasures_are_saved():
            yield
        return True

    def _saving_table(self, table: TopicTable | GroupTable | RequestModeTable, file: str) -> Steps[None]:
        table.dirty = False
        try:
            yield from persist_parts(self._root, file, table.file_parts())
        except BaseException:
            table.dirty = True
            raise

    def save_hold(self) -> None:
        """Save the slaves for which writes are held, after a change."""
        hold = self._saved.hold
        if hold.dirty:
            write_hold(self._root, [HeldFor(**asdict(entry)) for entry in hold.divergences.values()])
            hold.dirty = False

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the queues of deleted topics from disk, once none of their records is in flight. Topics beyond
        REMOVE_WITHIN_S are due again at the next call."""
        saved = self._saved
        if not saved.deletions:
            return
        log = saved.store.log_state()
        due = saved.deletions.due(now_ms, log.append_offset, log.dispatched_offset)
        if not due:
            return
        due = self._without_settings(due)
        if not due:
            return
        if not self._erasures_are_saved():  # a deletion must not leave offsets in the file for a topic made again
            return
        self._save_start_offsets(due, log)
        gone: list[str] = []
        end_s = self._clock() + REMOVE_WITHIN_S
        try:
            for topic in due:
                saved.store.delete_topic(topic)
                gone.append(topic)
                if self._clock() >= end_s:
                    break
        finally:
            self._free(gone)

    def _without_settings(self, due: list[str]) -> list[str]:
        """The deleted topics that topics.json on disk no longer contains."""
        if not self._saving_tables and not self._deletions_saved.issuperset(due) and len(self._saved.topics) < SMALL:
            self.save_tables()
        return [topic for topic in due if topic in self._deletions_saved]

    def _save_start_offsets(self, topics: list[str], log: LogState) -> None:
        """Record that the log's present records of the topics belong to no later topics of these names. Not on a slave:
        its log may be ahead of its tables."""
        if not self._saved.live.follows_master:
            start_offsets = {**self._start_offsets, **dict.fromkeys(topics, log.append_offset)}
            start_offsets = within(start_offsets, log.min_offset, log.append_offset)
            write_start_offsets(self._root, start_offsets)
            self._start_offsets = start_offsets

    def _free(self, topics: list[str]) -> None:
        """The topics' queues are removed. Remove the topics from the files, or the next start would delete later topics
        of these names."""
        if topics:
            self._save_deletions(self._saved.deletions.topics().difference(topics))
            for topic in topics:
                self._saved.deletions.done(topic)

    def load_deletions(self) -> frozenset[str]:
        """Deleted topics whose queues the previous run has not removed. Raises ConfigFileError, OSError."""
        with contextlib.suppress(ConfigFileError):  # recovery has logged the error
            self._start_offsets = read_start_offsets(self._root)
        self._deletions = read_deletions(self._root)
        return self._deletions

    def _save_deletions(self, topics: frozenset[str]) -> None:
        if topics != self._deletions:
            write_deletions(self._root, topics)
            self._deletions = topics

    def save_offsets_if_due(self, now_ms: int) -> None:
        """Begin to save changed consumer offsets, every flushConsumerOffsetInterval. `save_some` goes on."""
        if now_ms - self._offsets_saved_ms < self._saved.live.config.flush_consumer_offset_interval:  # it may change
            return
        self._offsets_saved_ms = now_ms
        self._save_client_names()
        self._begin_saving()
        self._save_slave_commits()

    @property
    def is_saving(self) -> bool:
        """True while consumer offsets are being saved. `save_some` has to be called again."""
        return self._saving is not None

    def save_some(self) -> None:
        """Go on saving consumer offsets for SAVE_MS."""
        if self._saving is None:
            return
        steps, erasures = self._saving
        text = self._turn_clock.advance(steps, SAVE_MS)
        if text is not None:
            self._write_offsets(text, erasures)

    def save_offsets(self) -> None:
        """Save all consumer offsets and the names that clients have made, after changes. It takes as long as it
        must."""
        self._save_client_names()
        self._saving = None
        self._begin_saving()
        if self._saving is not None:
            self._write_offsets(finish(self._saving[0]), self._saving[1])
        self._save_slave_commits()

    def _erasures_are_saved(self) -> bool:
        """True if the file has no erased offset any more. Otherwise saving goes on, and a later call may return
        True."""
        erasures = self._saved.offsets.erasures
        if self._erasures_saved < erasures:
            if self._saving is not None and self._saving[1] < erasures:
                self._saving = None
            self._begin_saving()
            self.save_some()
        return self._erasures_saved >= erasures

    def _begin_saving(self) -> None:
        offsets = self._saved.offsets
        if self._saving is None and (offsets.dirty or self._unwritten):
            self._saving = offsets.file_text(), offsets.erasures
            self._unwritten = True
            offsets.dirty = False

    def _write_offsets(self, text: str, erasures: int) -> None:
        self._saving = None
        persist_text(self._root, offsets.FILE, text)
        self._unwritten = False
        self._erasures_saved = erasures

    def _save_client_names(self) -> None:
        if self._saved.client_names.dirty:
            persist_text(self._root, client_names.FILE, json.dumps(self._saved.client_names.to_json()))
            self._saved.client_names.dirty = False

    def _save_slave_commits(self) -> None:
        """Save a slave's offsets that its master does not know yet. A slave that never had any has no file."""
        keys = sorted(self._saved.offsets.committed_here)
        if keys != self._slave_commits:
            persist_text(self._root, SLAVE_COMMITS_FILE, json.dumps(keys))
            self._slave_commits = keys

    def load_client_names(self) -> None:
        """Load the names of the previous run. Raises ConfigFileError for an invalid file."""
        names = read_client_names(self._root)
        if names:
            self._saved.client_names.load(names, self._saved.topics, self._saved.groups.names())

    def load_slave_commits(self) -> None:
        """Load the offsets of the previous run. Raises ConfigFileError for an invalid file."""
        keys = read_slave_commits(self._root)
        self._saved.offsets.committed_here.update(keys)
        self._slave_commits = sorted(keys)
