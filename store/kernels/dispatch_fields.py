"""Fields that dispatch derives from records (tags code, index hashes), written a second time, without the C core.

`store verify --cross-check` compares both over every record. Without a second implementation a wrong hash would be
wrong in all places alike. Inputs are the bytes of a log file and the positions of its records. The scanner has
validated all lengths.
"""

from typing import Any

import numpy as np

from ringmq.store.layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from ringmq.store.record import java_hash, parse_record

TAGS, KEYS, UNIQ_KEY = b"TAGS", b"KEYS", b"UNIQ_KEY"


def reference(data: bytes | memoryview, positions: Any, sizes: Any) -> tuple[list[int], list[int], list[int]]:
    """Return (tags codes, key counts, key hashes of all records one after another), in plain Python."""
    tags_codes, counts, hashes = [], [], []
    view = memoryview(data)
    for position, size in zip(positions, sizes, strict=True):
        _, record = parse_record(view[position : position + size], check_crc=False)
        assert record is not None, f"no record at {position}"
        properties = record.properties
        tags_codes.append(java_hash(properties.get("TAGS", "")))
        keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        keys += [key for key in properties.get("KEYS", "").split(" ") if key]
        if record.transaction_type == TRANSACTION_ROLLBACK:
            keys = []
        counts.append(len(keys))
        for key in keys:
            value = abs(java_hash(f"{record.topic}#{key}"))
            hashes.append(0 if value == 1 << 31 else value)
    return tags_codes, counts, hashes


def _u32(data: Any, at: int) -> int:
    return (int(data[at]) << 24) | (int(data[at + 1]) << 16) | (int(data[at + 2]) << 8) | int(data[at + 3])


def _hash_from(seed: int, data: Any, start: int, stop: int) -> int:
    """Return the Java hash of well-formed UTF-8 (0 .. 2^32-1).

    Malformed bytes follow the U+FFFD rules of C core and Java.
    """
    value = seed
    at = start
    while at < stop:
        byte = int(data[at])
        unit, low, length = byte, 0, 1
        if byte >= 0x80:
            unit, low, length = _units(data, at, stop)
        value = (value * 31 + unit) & 0xFFFFFFFF
        if low:
            value = (value * 31 + low) & 0xFFFFFFFF
        at += length
    return value


def _units(data: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Decode one character above ASCII: (first UTF-16 unit, second one or 0, bytes used)."""
    byte = int(data[at])
    need, first_low, first_high = 0, 0x80, 0xBF
    if 0xC2 <= byte <= 0xDF:
        need, point = 1, byte & 0x1F
    elif 0xE0 <= byte <= 0xEF:
        need, point = 2, byte & 0x0F
        if byte == 0xE0:
            first_low = 0xA0
    elif 0xF0 <= byte <= 0xF4:
        need, point = 3, byte & 0x07
        if byte == 0xF0:
            first_low = 0x90
        elif byte == 0xF4:
            first_high = 0x8F
    else:
        return 0xFFFD, 0, 1
    for i in range(1, need + 1):
        if at + i >= stop:
            return 0xFFFD, 0, i
        follow = int(data[at + i])
        low, high = (first_low, first_high) if i == 1 else (0x80, 0xBF)
        if follow < low or follow > high:
            return 0xFFFD, 0, i
        point = (point << 6) | (follow & 0x3F)
    if need == 2 and 0xD800 <= point <= 0xDFFF:
        return 0xFFFD, 0, 3
    if point >= 0x10000:
        point -= 0x10000
        return 0xD800 + (point >> 10), 0xDC00 + (point & 0x3FF), 4
    return point, 0, need + 1


def _is_name(data: Any, start: int, stop: int, name: bytes) -> bool:
    if stop - start != len(name):
        return False
    for i in range(len(name)):  # noqa: SIM110 - a kernel has no generators
        if data[start + i] != name[i]:
            return False
    return True


def _properties(data: Any, position: int) -> tuple[int, int, int, int]:
    """Return the positions of topic and properties in a record: (topic start, topic stop, properties start, stop)."""
    sys_flag = _u32(data, position + 36)
    at = position + 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    at += 4 + _u32(data, at)
    if data[position + 7] == 0xAB:
        length = (int(data[at]) << 8) | int(data[at + 1])
        at += 2
    else:
        length = int(data[at])
        at += 1
    topic, at = at, at + length
    length = (int(data[at]) << 8) | int(data[at + 1])
    return topic, at, at + 2, at + 2 + length


def _find(data: Any, start: int, stop: int, name: bytes) -> tuple[int, int]:
    """Return the last non-empty value of a property as (start, stop), (0, 0) without one."""
    found, found_stop = 0, 0
    at = start
    while at < stop:
        split = end = at
        while end < stop and data[end] != 2:
            end += 1
        while split < end and data[split] != 1:
            split += 1
        if split > at and split + 1 < end and _is_name(data, at, split, name):
            found, found_stop = split + 1, end
        at = end + 1
    return found, found_stop


def _index_hash(value: int) -> int:
    if value == 0x80000000:
        return 0
    return 0x100000000 - value if value > 0x80000000 else value


def _kernel(data: Any, positions: Any, tags_codes: Any, counts: Any, hashes: Any) -> int:
    """Fill the arrays and return the number of hashes, -1 if they do not fit."""
    total = 0
    for i in range(len(positions)):
        position = positions[i]
        topic, topic_stop, start, stop = _properties(data, position)
        at, end = _find(data, start, stop, TAGS)
        value = _hash_from(0, data, at, end)
        tags_codes[i] = value - 0x100000000 if value >= 0x80000000 else value
        first = total
        if _u32(data, position + 36) & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            seed = (_hash_from(0, data, topic, topic_stop) * 31 + 35) & 0xFFFFFFFF
            at, end = _find(data, start, stop, UNIQ_KEY)
            if end > at:
                if total == len(hashes):
                    return -1
                hashes[total] = _index_hash(_hash_from(seed, data, at, end))
                total += 1
            at, end = _find(data, start, stop, KEYS)
            while at < end:
                word = at
                while at < end and data[at] != 32:
                    at += 1
                if at > word:
                    if total == len(hashes):
                        return -1
                    hashes[total] = _index_hash(_hash_from(seed, data, word, at))
                    total += 1
                at += 1
        counts[i] = total - first
    return total


_compiled: Any = None


def compiled() -> Any:
    """Return the numba version of `_kernel`, compiled on first use. Raises ImportError without numba."""
    global _compiled
    if _compiled is None:
        from numba import njit

        namespace = dict(globals())
        for name in ("_u32", "_units", "_hash_from", "_is_name", "_properties", "_find", "_index_hash", "_kernel"):
            plain = namespace[name]
            function = type(plain)(plain.__code__, namespace, name)
            namespace[name] = njit(nogil=True)(function)
        _compiled = namespace["_kernel"]
    return _compiled


def dispatch_fields(data: Any, positions: Any, hashes_max: int, *, plain: bool = False) -> tuple[Any, Any, Any]:
    """Run the kernel over one file. Returns arrays (tags codes i64, key counts i32, hashes i32).

    `data` is a uint8 array of the file, `positions` an i64 array of positions in the file. `plain` runs the kernel
    without compilation.
    """
    tags_codes = np.zeros(len(positions), np.int64)
    counts = np.zeros(len(positions), np.int32)
    hashes = np.zeros(hashes_max, np.int32)
    total = (_kernel if plain else compiled())(data, positions, tags_codes, counts, hashes)
    if total < 0:
        raise ValueError(f"more than {hashes_max} keys")
    return tags_codes, counts, hashes[:total]
