"""Damage of single files, and the messages that a store can serve afterwards."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ringmq.store.config import StoreConfig
from ringmq.store.dispatch_backlog import dispatch_backlog
from ringmq.store.index_file import index_paths
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueBound, write_queue_ends
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import RecoveredStore

FAR = 1 << 62
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""
Damage = Callable[[Path, Path], None]
"""Damages a file. The second path is an older copy of the file."""


def leave_bounds(config: StoreConfig) -> None:
    """Write what a clean stop of this store writes."""
    found = recover(config)
    rows = [
        (name[0], name[1], QueueBound(state.is_batch, state.min_offset, state.max_offset))
        for name, state in found.queues.items()
    ]
    write_queue_ends(config.root, found.min_offset, found.append_offset, rows)


def messages(config: StoreConfig) -> dict[Place, int]:
    """Return the commit log offset of every message that a queue of this store names."""
    store = MessageStore(config)
    places = {}
    for name in store.queue_names():
        queue = store.queue(name.topic, name.queue_id)
        assert queue is not None
        end = queue.max_offset(FAR)
        for unit in queue.units(queue.min_offset(store.commit_log.min_offset, end), end):
            places[name.topic, name.queue_id, unit.queue_offset] = unit.commit_log_offset
    return places


def messages_after(config: StoreConfig, result: RecoveredStore) -> dict[Place, int]:
    """Like `messages`, with the units that dispatch makes after this recovery."""
    kept = {
        place: at
        for place, at in messages(config).items()
        if (state := result.queues.get(place[:2])) is not None and state.min_offset <= place[2] < state.max_offset
    }
    for name, tail in dispatch_backlog(MessageStore(config), result).items():
        for record in tail:
            if record.commit_log_offset >= result.redispatch_offset:
                kept[*name, record.queue_offset] = record.commit_log_offset
    return kept


def is_index_whole(config: StoreConfig, result: RecoveredStore) -> bool:
    """True if every record with a key has an entry, or dispatch is going to make it."""
    store = MessageStore(config)
    indexed = {entry[1] for file in store.index.files() for entry in file.entries_from()}
    wanted = {
        record.commit_log_offset
        for _, record in store.commit_log.scan(store.commit_log.min_offset, result.append_offset, check_crc=False)
        if record.properties.get("UNIQ_KEY") or record.properties.get("KEYS")
    }
    return all(at in indexed or at >= result.redispatch_offset for at in wanted)


def missing(path: Path, older: Path) -> None:
    path.unlink()


def empty(path: Path, older: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path, older: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3 | 1)


def too_long(path: Path, older: Path) -> None:
    with path.open("ab") as file:
        file.write(b"surplus ")


def garbage(path: Path, older: Path) -> None:
    size = path.stat().st_size
    path.write_bytes((bytes(range(1, 256)) * (size // 255 + 1))[:size])


def one_bit(path: Path, older: Path) -> None:
    """Flip the highest bit but one of a byte at a third of the bytes in use: of a unit's place, of a record's body."""
    data = bytearray(path.read_bytes())
    at = len(data.rstrip(b"\0")) // 3
    at -= at % 20 if "consumequeue" in path.parts else 100 if "commitlog" in path.parts else 0
    data[at] ^= 0x40
    path.write_bytes(data)


def zeros(path: Path, older: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def wrong_type(path: Path, older: Path) -> None:
    path.unlink()
    path.mkdir()


def nested(path: Path, older: Path) -> None:
    """Lists in one another, deeper than any parser goes down by calls."""
    path.write_bytes(b"[" * 100_000)


def pipe(path: Path, older: Path) -> None:
    """A pipe without a writer: a plain open would wait for one."""
    path.unlink()
    os.mkfifo(path)


def older_copy(path: Path, older: Path) -> None:
    shutil.copyfile(older, path) if older.exists() else path.unlink()


def unreadable(path: Path, older: Path) -> None:
    """Only for a user without root's rights: see `as_nobody`."""
    path.chmod(0)


KINDS: tuple[Damage, ...] = (
    missing, empty, truncated, too_long, garbage, one_bit, zeros, wrong_type, older_copy, unreadable, nested, pipe,
)  # fmt: skip


def newest_index(root: Path) -> Path:
    """Return the newest index file."""
    return index_paths(root / "index")[-1]
