"""Damage part of recovery: finds queues and index files that lack entries, and moves away what cannot be used.

A clean stop leaves the bounds of all queues (`queue_ends`), so a start knows which of them lost units. Units and index
entries are made again from the log. The offset from which that happens is on disk before the first file is moved, so
any later start goes on. Moved files are in `ringmq.cut/` in the store's root.
"""

from pathlib import Path

from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, load_config
from ringmq.store.index_file import IndexFile, header_end_offset, index_file_bytes, index_paths
from ringmq.store.inferred_config import is_of_other_sizes
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueBound, QueueEnds, read_rebuild, write_rebuild
from ringmq.store.recovery_queues import NO_LIMIT, QueueState, load_queues
from ringmq.store.recovery_truncate import CUT_FOLDER
from ringmq.store.safe_files import free_name

NAMED_MAX = 5
"""Lines about single queues or files. One more line has the number of the others."""


class Damage:
    """Queues and index files of a start that lack entries or cannot be used. Nothing is changed before `set_aside`."""

    def __init__(self, store: MessageStore, log_min: int, ends: QueueEnds | None) -> None:
        self._interrupted = read_rebuild(store.config.root)
        self.rebuild_from = self._interrupted
        """Commit log offset from which entries are made again, None if nothing is missing."""
        self.reasons: list[str] = []
        self._store = store
        self._root = store.config.root
        self._log_min = log_min
        self._log_end = store.commit_log.files.end_offset or NO_LIMIT
        self._ends = ends
        self.unusable: list[tuple[Path, str]] = []
        """Files that `set_aside` moves to `folder`, with the reason."""
        self.folder = store.config.root / CUT_FOLDER
        self._moved: list[str] = []

    def load_queues(self, *, trusted: bool, remove_empty: bool = True) -> dict[tuple[str, int], QueueState]:
        """Return the state of every queue, those included that only the last clean stop knows.

        Raises StoreLoadError, OSError.
        """
        known = self._ends.queues if self._ends is not None else {}
        loaded = load_queues(
            self._store, trusted=trusted, remove_empty=remove_empty, log_end=self._log_end, known=known
        )
        states = loaded.states
        self.unusable += loaded.unusable
        if self._ends is not None and any(state.physical_end > self._ends.log_end for state in states.values()):
            self._ends = None  # another broker has appended since
        if self._ends is not None:
            self._compare(states, self._ends)
        lines = []
        for (topic, queue_id), state in states.items():
            if self._ends is None and self._log_min == 0 and not state.is_batch and not state.damage:
                self._check_begin(state, QueueBound(False, 0, state.max_offset))
            if self.rebuild_from is not None and state.physical_end < 0 and not self._has_files(topic, queue_id):
                state.is_lost = True
            if state.damage:
                self._rebuild(state.physical_end - 1)
                entries = "its entries" if state.is_lost else f"its entries from {state.max_offset} on"
                lines.append(f"queue {topic}/{queue_id}: {state.damage}; {entries} are made again")
        self.reasons += named(lines, "queues with missing entries")
        return states

    @property
    def log_end_at_stop(self) -> int:
        """End of the log at the last clean stop, 0 if it is unknown."""
        return 0 if self._ends is None else self._ends.log_end

    def _has_files(self, topic: str, queue_id: int) -> bool:
        queue = self._store.queue(topic, queue_id)
        return queue is not None and bool(queue.files.starts)

    def _compare(self, states: dict[tuple[str, int], QueueState], ends: QueueEnds) -> None:
        if self._log_min > ends.log_min:
            self.reasons.append(
                f"the log began at {ends.log_min} when the broker stopped, and begins at {self._log_min} now: log "
                "files are missing, and so are their messages"
            )
        for (topic, queue_id), bound in ends.queues.items():
            state = states.get((topic, queue_id))
            if state is None:
                end = bound.following
                state = states[topic, queue_id] = QueueState(topic, queue_id, bound.is_batch, end, end, -1)
                state.is_lost = True
                state.damage = "its files are missing" if end > bound.first else ""
            elif state.max_offset < bound.following:
                state.damage = state.damage or f"it ended at {bound.following} when the broker stopped"
                if not self._has_files(topic, queue_id):
                    state.is_lost = True
                    state.min_offset = state.max_offset = bound.following
            elif not state.is_batch and self._log_min == ends.log_min:
                self._check_begin(state, bound)

    def _check_begin(self, state: QueueState, bound: QueueBound) -> None:
        """If the file of the queue's first message is missing, make all units again.

        Retention may have deleted a part of the log whose units are still there, so the files are compared.
        """
        queue = self._store.queue(state.topic, state.queue_id)
        if queue is None or not queue.files.starts or queue.files.min_offset // queue.unit_bytes <= bound.first:
            return
        state.damage = f"its file with message {bound.first} is missing"
        for start in list(queue.files.starts):
            self.unusable.append((Path(queue.files.leave_out(start)), "the file before it is missing"))
        state.is_lost, state.physical_end = True, -1
        state.min_offset = state.max_offset = state.next_offset = bound.following

    def check_index(self) -> int | None:
        """Find index files that cannot be used. Return the record from which the index is made again, else None.

        Entries follow the log, so all files behind the first unusable one go, too. Raises StoreLoadError for a whole
        file of another configuration.
        """
        config = self._store.config
        if not config.message_index:
            return None
        paths = index_paths(self._root / layout.INDEX)
        bad: tuple[int, str] | None = None
        for number, path in enumerate(paths):
            fault = self._index_fault(path, path == paths[-1])
            if fault is not None:
                bad = number, fault
                break
        names = self._ends.index if self._ends is not None else {}
        if bad is None and (missing := [name for name in names if name not in {path.name for path in paths}]):
            behind = [number for number, path in enumerate(paths) if path.name > missing[0]]
            bad = min(behind, default=len(paths)), f"index file {missing[0]} is missing"
        if bad is None:
            return self._interrupted
        number, why = bad
        good = paths[number - 1] if number else None
        from_offset = self._log_min if good is None else max(self._log_min, header_end_offset(good))
        self.unusable += [(path, why) for path in paths[number:]]
        self._rebuild(from_offset)
        self.reasons.append(f"{why}; the index is made again from log offset {from_offset} on")
        return from_offset if self._interrupted is None else min(from_offset, self._interrupted)

    def _index_fault(self, path: Path, is_newest: bool) -> str | None:
        config = self._store.config
        if not path.is_file():
            return f"{path} is no file"
        size, wanted = path.stat().st_size, index_file_bytes(config.index_slots, config.index_entries)
        if size != wanted:
            if size == 0 and is_newest and (self._ends is None or path.name not in self._ends.index):
                return None  # a crash between create and resize
            fault = (
                f"{path} has {size} bytes, not the {wanted} of maxHashSlotNum = {config.index_slots} and "
                f"maxIndexNum = {config.index_entries}"
            )
            if is_of_other_sizes(path):
                raise StoreLoadError(fault)
            return fault
        try:
            file = IndexFile(path, config.index_slots, config.index_entries)
        except StoreLoadError as error:
            return str(error)
        header_fault = file.header_fault
        if header_fault is not None:
            return f"{path}: {header_fault}"
        if file.header.next_number <= 1 and not is_newest:
            return f"{path} has no entries"
        wanted_end = 0 if self._ends is None else self._ends.index.get(path.name, 0)
        if file.header.end_offset < wanted_end:
            return (
                f"{path} ends at log offset {file.header.end_offset}, and ended at {wanted_end} when the broker stopped"
            )
        return None

    def set_aside(self, from_offset: int) -> None:
        """Record `from_offset`, then move the unusable files away. Raises OSError."""
        import shutil  # imports the compressors of archives

        if self.rebuild_from is None:
            return
        write_rebuild(self._root, from_offset)
        for path, why in self.unusable:
            target = free_name(self.folder / path.relative_to(self._root))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            self._moved.append(f"{path} is moved to {target}: {why}")
        self.reasons += named(self._moved, "files are moved")

    def _rebuild(self, offset: int) -> None:
        wanted = max(self._log_min, offset)
        self.rebuild_from = wanted if self.rebuild_from is None else min(self.rebuild_from, wanted)


def named(lines: list[str], what: str) -> list[str]:
    """Return the first NAMED_MAX lines, and one with the number of the others."""
    more = [f"{len(lines) - NAMED_MAX} more {what}"] if len(lines) > NAMED_MAX else []
    return lines[:NAMED_MAX] + more


def existing_topics(root: Path, ends: QueueEnds | None) -> frozenset[str] | None:
    """Return the topics that exist, None if they are unknown.

    Topics that were there at the last clean stop count, too, if topics.json is damaged and its older copy is read.
    """
    problems: list[str] = []
    try:
        table = load_config(root, "topics.json", problems.append).get("topicConfigTable")
    except ConfigFileError:
        return None
    if not isinstance(table, dict) or not table or (problems and ends is None):
        return None
    stopped_with = {topic for topic, _ in ends.queues} if problems and ends is not None else set()
    return frozenset(map(str, table)) | stopped_with
