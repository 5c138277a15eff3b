"""The C core's rows and the plain twin's are the same, on whole and on damaged bytes, for every set of columns."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.spark_bridge.native_rows import NativeRows
from ringmq.spark_bridge.plain_rows import PlainRows
from ringmq.spark_bridge.rows import (
    ANYWHERE,
    INDEX_COLUMNS,
    BatchShape,
    Rows,
    Stop,
    Walk,
    WantedQueue,
    WantedRows,
    walk_log,
    walk_units,
)
from ringmq.spark_bridge.schema import COLUMNS, arrow_schema
from ringmq.spark_bridge.slices import TimeRange
from tests.spark_bridge.made_store import BORN_MS, STORED_MS, Fields, properties_bytes, record_bytes
from tests.spark_bridge.plain_decoder import log_messages

ALL = tuple(COLUMNS)


def finish(rows: Rows, walk: Walk) -> tuple[pa.Table, Stop]:
    """All rows of a walk and where it ended. A table: damaged times are beyond what Python can say."""
    batches = []
    while True:
        try:
            batches.append(next(walk))
        except StopIteration as end:
            batches.append(rows.take())
            for batch in batches:
                batch.validate(full=True)
            return pa.Table.from_batches(batches).combine_chunks(), end.value


def assert_same_log(data: bytes, data_start: int, wanted: WantedRows, columns: tuple[str, ...], **shape: int) -> int:
    size = BatchShape(columns, "b", shape.get("batch_bytes", 1 << 20), shape.get("batch_rows", 8192))
    native, plain = NativeRows(size, wanted), PlainRows(size, wanted)
    fast, fast_stop = finish(native, walk_log(native, data, 0, len(data), data_start))
    slow, slow_stop = finish(plain, walk_log(plain, data, 0, len(data), data_start))
    assert fast_stop == slow_stop
    assert fast.equals(slow)
    return int(fast.num_rows)


def all_queues(store: Path) -> tuple[WantedQueue, ...]:
    keys = sorted({(message.topic, message.queue_id) for message in log_messages(store)})
    return tuple(WantedQueue(topic, queue_id, 0, 1 << 62) for topic, queue_id in keys)


def test_all_golden_records(golden_store: Path) -> None:
    wanted = WantedRows(all_queues(golden_store), check_crc=True)
    found = 0
    for path in sorted((golden_store / "commitlog").iterdir()):
        found += assert_same_log(path.read_bytes(), int(path.name), wanted, ALL)
    assert found > 4302


@pytest.mark.parametrize("seed", range(30))
def test_damaged_and_cut_golden_bytes(golden_store: Path, seed: int) -> None:
    dice = random.Random(seed)
    path = sorted((golden_store / "commitlog").iterdir())[seed % 3]
    data = bytearray(path.read_bytes()[: dice.randrange(100, 40_000)])
    for _ in range(dice.randrange(4)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    columns = tuple(dice.sample(ALL, dice.randrange(1, len(ALL) + 1)))
    wanted = WantedRows(all_queues(golden_store), check_crc=bool(seed % 2))
    shape = {"batch_rows": dice.randrange(1, 50), "batch_bytes": dice.randrange(1, 5000)}
    assert_same_log(bytes(data), int(path.name), wanted, columns, **shape)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=6)
names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "b", "KEYSX", "KEY", ""]) | texts
odd_properties = st.binary(max_size=40) | st.lists(st.tuples(names, texts), max_size=8).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
records = st.builds(
    Fields,
    topic=st.sampled_from(["T", "U", "Straße", "long" * 40]),
    queue_id=st.integers(0, 2),
    body=st.binary(max_size=30),
    properties=odd_properties,
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12, 1, 0x81, 0x101, 0x201, 0x301, 0xC1, 0x701]),
    born_ms=st.integers(BORN_MS, BORN_MS + 9),
    stored_ms=st.integers(STORED_MS, STORED_MS + 9),
    born_host=st.sampled_from(["1.2.3.4", "::1"]),
    store_host=st.sampled_from(["1.2.3.4", "fe80::2"]),
)
WANTED = WantedRows(
    (WantedQueue("T", 0, 1, 4), WantedQueue("U", 1, 0, 9, 200), WantedQueue("Straße", 0, 0, 9),
     WantedQueue("long" * 40, 2, 0, 2)),
    TimeRange(STORED_MS + 1, STORED_MS + 8),
)  # fmt: skip


def encoded(fields: list[Fields], start: int) -> bytes:
    data = b""
    for number, one in enumerate(fields):
        data += record_bytes(one, number // 2, start + len(data))
    return data


@settings(max_examples=120)
@given(
    fields=st.lists(records, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=3),
    columns=st.sets(st.sampled_from(ALL), min_size=1),
    batch_rows=st.integers(1, 5),
    anywhere=st.booleans(),
)
def test_made_and_damaged_records(
    fields: list[Fields], changes: list[tuple[int, int]], columns: set[str], batch_rows: int, anywhere: bool
) -> None:
    data = bytearray(encoded(fields, 100))
    for at, byte in changes:
        if at < len(data):
            data[at] = byte
    assert_same_log(bytes(data), ANYWHERE if anywhere else 100, WANTED, tuple(sorted(columns)), batch_rows=batch_rows)


@settings(max_examples=80)
@given(
    fields=st.lists(records, min_size=1, max_size=6),
    changes=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=2),
    window=st.tuples(st.integers(0, 400), st.integers(0, 1000)),
    from_index=st.booleans(),
)
def test_units(fields: list[Fields], changes: list[tuple[int, int]], window: tuple[int, int], from_index: bool) -> None:
    """Units of the queue T-0 with offsets from 1 on, some of them wrong, over a window of the log."""
    data, units = b"", b""
    for number, one in enumerate(fields):
        record = record_bytes(one, 1 + number, 100 + len(data))
        units += (100 + len(data)).to_bytes(8, "big") + len(record).to_bytes(4, "big") + bytes(8)
        data += record
    damaged = bytearray(units)
    for at, byte in changes:
        if at < len(damaged):
            damaged[at] = byte
    wanted = WantedRows((WantedQueue("T", 0, 0, 1 << 40),), check_crc=True)
    columns = tuple(sorted(INDEX_COLUMNS)) if from_index else ALL
    begin, end = window[0], window[0] + window[1]
    seen = None if from_index else data[begin:end]
    shape = BatchShape(columns, "b", 64, 2)
    native, plain = NativeRows(shape, wanted), PlainRows(shape, wanted)
    fast, fast_stop = finish(native, walk_units(native, 0, bytes(damaged), 0, 1, seen, 100 + begin))
    slow, slow_stop = finish(plain, walk_units(plain, 0, bytes(damaged), 0, 1, seen, 100 + begin))
    assert fast_stop == slow_stop
    assert fast.equals(slow)


def test_more_properties_than_are_compared_in_c() -> None:
    pairs = {f"name-{number}": f"value {number}" for number in range(200)}
    raw = properties_bytes(pairs) + b"name-7\x01last\x02"
    data = record_bytes(Fields(properties=raw), 0, 0)
    wanted = WantedRows((WantedQueue("T", 0, 0, 1),))
    assert assert_same_log(data, 0, wanted, ("properties", "headers", "tags")) == 1
    rows = NativeRows(BatchShape(("properties",), "b", 100, 10), wanted)
    found, _ = finish(rows, walk_log(rows, data, 0, len(data), 0))
    assert dict(found["properties"][0].as_py()) == pairs | {"name-7": "last"}


def test_schemas_are_the_declared_ones(golden_store: Path) -> None:
    shape = BatchShape(ALL, "b", 1 << 20, 100)
    wanted = WantedRows(all_queues(golden_store))
    for kind in (NativeRows, PlainRows):
        rows = kind(shape, wanted)
        assert rows.take().schema.equals(arrow_schema(ALL))
