"""Small stores made byte by byte, and what they hold: written against RocketMQ's layout, with nothing of the bridge."""

import contextlib
import ipaddress
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
COMPRESSED, PREPARED, COMMIT, ROLLBACK, BORN_V6, STORE_V6, UNWRAP, INNER = 1, 4, 8, 12, 16, 32, 64, 128
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
BORN_MS, STORED_MS = 1_700_000_000_000, 1_700_000_001_000


_HOLD = "import fcntl, sys; file = open(sys.argv[1], 'wb'); fcntl.lockf(file, 2, 1); print(1, flush=True); input()"


_OTHER_LOCKS = """
import fcntl, pathlib, sys
files = [open(pathlib.Path(sys.argv[1]) / f"other{number}", "w") for number in range(200)]
print("ready", flush=True)
while True:
    for how in (fcntl.LOCK_EX, fcntl.LOCK_UN):
        for file in files:
            fcntl.flock(file, how)
"""


@contextlib.contextmanager
def other_locks(folder: Path) -> Iterator[None]:
    """Another process takes and lets go of 200 locks of files in `folder`, over and over."""
    with subprocess.Popen([sys.executable, "-c", _OTHER_LOCKS, str(folder)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"ready\n"
            yield
        finally:
            other.kill()


@contextlib.contextmanager
def held_by_stock(root: Path) -> Iterator[None]:
    """Another process owns the store as a stock broker does: its lock belongs to the process, not to an open file."""
    command = [sys.executable, "-c", _HOLD, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline()
        try:
            yield
        finally:
            owner.communicate(b"\n")


def properties_bytes(pairs: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


@dataclass
class Fields:
    """One record; hosts as text, IPv6 when they hold a colon."""

    topic: str = "T"
    queue_id: int = 0
    body: bytes = b"body"
    properties: bytes = b""
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = BORN_MS
    stored_ms: int = STORED_MS
    born_host: str = "127.0.0.1"
    store_host: str = "10.1.2.3"
    reconsume_times: int = 0
    messages: int = 1
    """Queue offsets that it takes."""


def record_bytes(fields: Fields, queue_offset: int, position: int) -> bytes:
    born, store = (ipaddress.ip_address(host).packed for host in (fields.born_host, fields.store_host))
    flags = fields.sys_flag | (BORN_V6 if len(born) == 16 else 0) | (STORE_V6 if len(store) == 16 else 0)
    topic = fields.topic.encode()
    magic, length = (V1, bytes([len(topic)])) if len(topic) < 128 else (V2, struct.pack(">H", len(topic)))
    rest = (
        struct.pack(">q", fields.born_ms) + born + struct.pack(">i", 1111)
        + struct.pack(">q", fields.stored_ms) + store + struct.pack(">i", 10911)
        + struct.pack(">iqi", fields.reconsume_times, 0, len(fields.body)) + fields.body
        + length + topic + struct.pack(">H", len(fields.properties)) + fields.properties
    )  # fmt: skip
    head = struct.pack(
        ">IiiqqI", zlib.crc32(fields.body) & 0x7FFFFFFF, fields.queue_id, fields.flag, queue_offset, position, flags
    )
    return struct.pack(">II", 8 + len(head) + len(rest), magic) + head + rest


def inner_batch_bytes(messages: list[tuple[bytes, bytes]]) -> bytes:
    """The body of an inner batch of (body, properties)."""
    parts = []
    for body, properties in messages:
        size = 22 + len(body) + len(properties)
        parts.append(
            struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
        )
    return b"".join(parts)


@dataclass
class MadeStore:
    """Appends records to a log of `file_bytes` per file and units to ConsumeQueues (or BatchConsumeQueues of topics in
    `batch_topics`). `delivery_key` has (commit-log offset, size, fields, queue offset) in log order."""

    root: Path
    file_bytes: int = 1 << 20
    units_per_file: int = 1000
    batch_topics: frozenset[str] = frozenset()
    end: int = 0
    places: list[tuple[int, int, Fields, int]] = field(default_factory=list)
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.root / "commitlog").mkdir(parents=True)

    def append(self, *, is_dispatched: bool = True, **fields: Any) -> int:
        """Append a record; its commit-log offset."""
        given = Fields(**fields)
        key = (given.topic, given.queue_id)
        queue_offset = self.next_offsets.get(key, 0)
        size = len(record_bytes(given, 0, 0))
        left = self.file_bytes - self.end % self.file_bytes
        if size + 8 > left:
            self._write(struct.pack(">II", left, BLANK))
            self.end += left
        position = self.end
        self._write(record_bytes(given, queue_offset, position))
        self.places.append((position, size, given, queue_offset))
        self.end += size
        if is_dispatched:
            self._dispatch(given, queue_offset, position, size)
            self.next_offsets[key] = queue_offset + given.messages
        return position

    def _write(self, data: bytes) -> None:
        path = self.segment(self.end)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(self.file_bytes)
        with path.open("r+b") as file:
            file.seek(self.end % self.file_bytes)
            file.write(data)

    def segment(self, position: int) -> Path:
        """The log file that holds the offset."""
        return self.root / "commitlog" / f"{position // self.file_bytes * self.file_bytes:020d}"

    def damage(self, position: int, data: bytes) -> None:
        """Overwrite bytes of the log."""
        with self.segment(position).open("r+b") as file:
            file.seek(position % self.file_bytes)
            file.write(data)

    def _dispatch(self, fields: Fields, queue_offset: int, position: int, size: int) -> None:
        is_batch = fields.topic in self.batch_topics
        folder = "batchconsumequeue" if is_batch else "consumequeue"
        if is_batch:
            unit = struct.pack(">qiqqqhii", position, size, 0, fields.stored_ms, queue_offset, fields.messages, -1, 0)
            number = sum(
                1
                for place in self.places[:-1]
                if (place[2].topic, place[2].queue_id) == (fields.topic, fields.queue_id)
            )
        else:
            unit, number = struct.pack(">qiq", position, size, 0), queue_offset
        self.write_unit(self.root / folder / fields.topic / str(fields.queue_id), number, unit)

    def write_filler(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Write the filler unit that dispatch puts at an offset whose record it does not index."""
        folder = self.root / "consumequeue" / topic / str(queue_id)
        self.write_unit(folder, queue_offset, struct.pack(">qiq", 0, 0x7FFFFFFF, 0))

    def write_unit(self, folder: Path, number: int, unit: bytes) -> None:
        """Put one unit at its place."""
        folder.mkdir(parents=True, exist_ok=True)
        file_bytes = self.units_per_file * len(unit)
        start = number * len(unit) // file_bytes * file_bytes
        path = folder / f"{start:020d}"
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(file_bytes)
        with path.open("r+b") as file:
            file.seek(number * len(unit) - start)
            file.write(unit)
