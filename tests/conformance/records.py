"""Stored files taken apart for comparison: what two brokers wrote from one input, without what must differ.

The layouts are written here again, on purpose: the comparison must not depend on the code under test.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ringmq.remoting.codes import ResponseCode
from tests.raw_client import RawClient

MESSAGE_MAGIC = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
# size, magic, body CRC, queue id, flag, queue offset, physical offset, sysFlag, born time
HEAD = struct.Struct(">IIIiiqqiq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
UNIQUE_KEY = b"UNIQ_KEY"
OWN_VALUES = (UNIQUE_KEY, b"KEYS", b"DELAY")


@dataclass(frozen=True)
class Record:
    """One record of the commit log with store time and hosts left out and its properties as a sorted list."""

    place: int
    size: int
    head: tuple[int, ...]
    tail: tuple[int, int]
    body: bytes
    topic: bytes
    properties: tuple[bytes, ...]

    def without_unique_key(self) -> tuple[object, ...]:
        """What must agree when the broker itself made the unique key (and so sizes and places differ)."""
        kept = tuple(pair for pair in self.properties if not pair.startswith(UNIQUE_KEY))
        _size, magic, crc, queue_id, flag, queue_offset, _place, sys_flag, born = self.head
        return (magic, crc, queue_id, flag, queue_offset, sys_flag, born, self.tail, self.body, self.topic, kept)


def log_bytes(root: Path) -> bytes:
    """All segments of a commit log that begins at 0, end to end."""
    segments = sorted((root / "commitlog").iterdir())
    parts = [segment.read_bytes() for segment in segments]
    position = 0
    for segment, part in zip(segments, parts, strict=True):
        assert int(segment.name) == position
        position += len(part)
    return b"".join(parts)


def records(log: bytes) -> Iterator[Record | tuple[int, int]]:
    """Every record in order; a blank at a segment's end is its place and size."""
    place = 0
    while place + 8 <= len(log):
        size, magic = struct.unpack_from(">II", log, place)
        if size == 0:
            return
        if magic == BLANK_MAGIC:
            yield place, size
        else:
            assert magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2), f"magic {magic:#x} at {place}"
            yield parse(log[place : place + size], place)
        place += size


def parse(data: bytes, place: int) -> Record:
    """One record that begins at `place`."""
    head = HEAD.unpack_from(data)
    magic, sys_flag = head[1], head[7]
    at = HEAD.size + (20 if sys_flag & BORN_HOST_V6 else 8) + 8 + (20 if sys_flag & STORE_HOST_V6 else 8)
    reconsume_times, prepared = struct.unpack_from(">iq", data, at)
    at += 12
    (length,) = struct.unpack_from(">i", data, at)
    body = data[at + 4 : at + 4 + length]
    at += 4 + length
    width = 2 if magic == MESSAGE_MAGIC_V2 else 1
    length = int.from_bytes(data[at : at + width])
    topic = data[at + width : at + width + length]
    at += width + length
    (length,) = struct.unpack_from(">h", data, at)
    text = data[at + 2 : at + 2 + length]
    assert at + 2 + length == len(data) and text.endswith(b"\x02")
    pairs = tuple(sorted(text[:-1].split(b"\x02")))
    return Record(place, len(data), head, (reconsume_times, prepared), body, topic, pairs)


@dataclass(frozen=True)
class MessageShape:
    """A record without what each message has of its own: times, places, names, delays, marks of RingMQ."""

    magic: int
    queue_id: int
    flag: int
    sys_flag: int
    reconsume_times: int
    topic: bytes
    properties: tuple[bytes, ...]
    """Sorted: stock writes them in the order of a HashMap, RingMQ in the order in which they came."""


def message_shape(data: bytes) -> MessageShape:
    """Return the shape of a record. Its CRC is compared with its body."""
    record = parse(data, 0)
    _size, magic, crc, queue_id, flag, _queue_offset, _place, sys_flag, _born = record.head
    assert crc == zlib.crc32(record.body) & 0x7FFFFFFF
    pairs = [pair.split(b"\x01") for pair in record.properties]
    kept = tuple(name + b"=" + (b"*" if name in OWN_VALUES else value) for name, value in pairs)
    return MessageShape(magic, queue_id, flag, sys_flag, record.tail[0], record.topic, kept)


def pulled_records(client: RawClient, topic: str) -> list[bytes]:
    """All records of a topic's first queue, as a broker gives them."""
    found: list[bytes] = []
    while (answer := client.pull(topic, offset=len(found))).code == ResponseCode.SUCCESS:
        at = 0
        while at < len(answer.body):
            size = int.from_bytes(answer.body[at : at + 4])
            found.append(bytes(answer.body[at : at + size]))
            at += size
    return found


def queue_units(root: Path, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    """(place in the log, size, tag hash) of every unit of a ConsumeQueue."""
    files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    units = [struct.unpack_from(">qiq", data, at) for at in range(0, len(data) - 19, 20)]
    while units and units[-1] == (0, 0, 0):
        units.pop()
    return units


def index_entries(file: Path, slots: int) -> tuple[tuple[int, ...], list[int], list[tuple[int, int, int]]]:
    """An index file without its times: header (places, slots used, count), slots, entries (hash, place, previous)."""
    data = file.read_bytes()
    _begin, _end, begin_place, end_place, used, count = INDEX_HEADER.unpack_from(data)
    table = list(struct.unpack_from(f">{slots}i", data, INDEX_HEADER.size))
    first = INDEX_HEADER.size + 4 * slots
    entries = []
    for number in range(1, count):
        key_hash, place, _seconds, previous = INDEX_ENTRY.unpack_from(data, first + INDEX_ENTRY.size * number)
        entries.append((key_hash, place, previous))
    return (begin_place, end_place, used, count), table, entries
