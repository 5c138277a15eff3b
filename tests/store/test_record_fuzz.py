"""The C parser and its Python reference give the same result for any bytes; the index survives a kill at any store."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records
from tests.store.test_torn_tail import encode

SLOTS, ENTRIES = 5, 12
FILE_BYTES = 40 + 4 * SLOTS + 20 * ENTRIES

body = st.binary(max_size=60)
properties = st.lists(
    st.sampled_from([b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02", b"x\x01y\x02", b"\x02", b"UNIQ_KEY\x01u\x02"])
).map(b"".join)


def _c_parse(data: bytes, check_crc: bool) -> tuple[int, Any]:
    view = ffi.new("struct rmq_record_view *")
    return lib.rmq_record_parse(ffi.from_buffer(data), len(data), int(check_crc), view), view


def _assert_same(data: bytes) -> None:
    for check_crc in (True, False):
        result, view = _c_parse(data, check_crc)
        wanted, record = records.parse_record(data, check_crc=check_crc)
        assert result == wanted
        if record is not None:
            assert record.body == data[view.body_at : view.body_at + view.body_length]
            assert record.properties_raw == data[view.properties_at : view.properties_at + view.properties_length]
            assert (record.size, record.queue_offset, record.store_time_ms) == (
                view.total_size, view.queue_offset, view.store_time_ms,
            )  # fmt: skip


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    _assert_same(data)


@settings(max_examples=200)
@given(body, properties, st.text(max_size=140).map(str.encode), st.data())
def test_corrupted_records(body: bytes, properties: bytes, topic: bytes, data: st.DataObject) -> None:
    raw = bytearray(encode(3, 0, body, properties, topic[:200]))
    _assert_same(bytes(raw))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    _assert_same(bytes(raw))
    _assert_same(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


@pytest.mark.parametrize("sys_flag", [0, layout.BORN_HOST_V6, layout.STORE_HOST_V6])
def test_a_record_whose_size_cuts_a_field(sys_flag: int) -> None:
    whole = bytearray(encode(3, 0, b"body", b"a\x01b\x02", b"topic"))
    whole[36:40] = sys_flag.to_bytes(4, "big")
    for end in range(4, len(whole)):
        whole[:4] = end.to_bytes(4, "big")
        _assert_same(bytes(whole[:end]))


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_properties_state_and_lookup(raw: bytes) -> None:
    data = ffi.from_buffer(raw)
    assert (lib.rmq_properties_state(data, len(raw)) == 0) == (records.torn_properties(raw) is None)
    text = raw.replace(b"\x04", b"\x01").replace(b"\x05", b"\x02").replace(b"\x06", b"TAGS\x01x\x02")
    pairs = records.parse_properties(text)
    keys, view = ffi.new("struct rmq_dispatch_keys *"), ffi.from_buffer(text)
    lib.rmq_dispatch_keys_find(view, len(text), keys)
    got = bytes(ffi.buffer(keys.tags, keys.tags_length)).decode("utf-8", "replace") if keys.tags else None
    assert got == pairs.get("TAGS")


# ---- index: killed between any two stores ---------------------------------------------------------------------


def _view(raw: bytes) -> tuple[Any, Any, Any]:
    view, keys, data = ffi.new("struct rmq_record_view *"), ffi.new("struct rmq_dispatch_keys *"), ffi.from_buffer(raw)
    assert lib.rmq_record_parse(data, len(raw), 0, view) == 1
    lib.rmq_dispatch_keys_find(data + view.properties_at, view.properties_length, keys)
    return view, keys, data


class Index:
    """Index files in plain memory, rolled when full."""

    def __init__(self, contents: list[bytes]) -> None:
        self.memory = [ffi.new("uint64_t[]", FILE_BYTES // 8 + 1) for _ in contents]
        self.files = [ffi.new("struct rmq_index *") for _ in contents]
        for memory, content in zip(self.memory, contents, strict=True):
            ffi.memmove(memory, content, FILE_BYTES)
        self.attach()

    def attach(self) -> None:
        for i, (file, memory) in enumerate(zip(self.files, self.memory, strict=True)):
            base = ffi.cast("uint8_t *", memory)
            assert lib.rmq_index_attach(file, base, FILE_BYTES, SLOTS, ENTRIES, 1) == 0
            header = ffi.new("struct rmq_index_header *")
            lib.rmq_index_header_get(file, header)
            if i and header.next_number == 1:
                lib.rmq_index_prefill(file, self.files[i - 1])

    def put(self, raw: bytes) -> None:
        view, keys, data = _view(raw)
        previous = self.files[-2] if len(self.files) > 1 else ffi.NULL
        done = ffi.new("uint32_t *", lib.rmq_index_replayed(self.files[-1], previous, view.physical_offset))
        if done[0] == 0xFFFFFFFF:
            return
        while lib.rmq_index_put_record(
            self.files[-1], data + view.topic_at, view.topic_length, keys, view.sys_flag, view.physical_offset,
            view.store_time_ms, done,
        ) == -28:  # fmt: skip
            self.memory.append(ffi.new("uint64_t[]", FILE_BYTES // 8 + 1))
            self.files.append(ffi.new("struct rmq_index *"))
            self.attach()

    def contents(self) -> list[bytes]:
        return [bytes(ffi.buffer(memory))[:FILE_BYTES] for memory in self.memory]


def _store_order(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """The stores of one put in program order, as byte ranges (index.c, rmq_index_put)."""
    number = max(1, int.from_bytes(before[36:40], "big"))
    entry = 40 + 4 * SLOTS + 20 * number
    key_hash = int.from_bytes(after[entry : entry + 4], "big")
    slot = 40 + 4 * (key_hash % SLOTS)
    order = [(8, 16), (24, 32), (entry, entry + 4), (entry + 4, entry + 12), (entry + 12, entry + 16),
             (entry + 16, entry + 20), (slot, slot + 4)]  # fmt: skip
    if number == 1:
        order += [(0, 8), (16, 24)]
    return [*order, (32, 40)]


def _single_steps(raw: bytes, index: Index) -> list[tuple[list[bytes], list[bytes]]]:
    """Put a record key by key and return the contents before and after each put that stays in one file."""
    steps = []
    _, record = records.parse_record(raw)
    assert record is not None
    while True:
        before = index.contents()
        keys_done = _put_one(raw, index)
        after = index.contents()
        if not keys_done:
            return steps
        if len(before) == len(after):
            steps.append((before, after))


def _put_one(raw: bytes, index: Index) -> bool:
    view, keys, data = _view(raw)
    all_keys = [bytes(ffi.buffer(keys.uniq_key, keys.uniq_key_length))]
    all_keys += bytes(ffi.buffer(keys.keys, keys.keys_length)).split()
    previous = index.files[-2] if len(index.files) > 1 else ffi.NULL
    done = lib.rmq_index_replayed(index.files[-1], previous, view.physical_offset)
    if done >= len(all_keys):
        return False
    if lib.rmq_index_is_full(index.files[-1]):
        index.memory.append(ffi.new("uint64_t[]", FILE_BYTES // 8 + 1))
        index.files.append(ffi.new("struct rmq_index *"))
        index.attach()
    key = all_keys[done]
    key_hash = lib.rmq_index_key_hash(data + view.topic_at, view.topic_length, key, len(key))
    assert lib.rmq_index_put(index.files[-1], key_hash, view.physical_offset, view.store_time_ms) == 1
    return True


def _records() -> list[bytes]:
    out, offset = [], 0
    for i, keys in enumerate(("k1 k2", "same same", "k1", "a b c d", "k2", "k1 x", "same y z", "k1 k1")):
        raw = encode(i * 700, offset, b"b", f"UNIQ_KEY\x01u{i}\x02KEYS\x01{keys}\x02".encode())
        out.append(raw)
        offset += len(raw)
    return out


def test_key_by_key_is_the_same_as_whole_records() -> None:
    whole, single = Index([bytes(FILE_BYTES)]), Index([bytes(FILE_BYTES)])
    for raw in _records():
        whole.put(raw)
        while _put_one(raw, single):
            pass
    assert whole.contents() == single.contents() and len(whole.files) == 3


@pytest.mark.parametrize("number", range(8))
def test_a_writer_killed_between_two_stores_loses_and_doubles_nothing(number: int) -> None:
    all_records = _records()
    index = Index([bytes(FILE_BYTES)])
    for raw in all_records[:number]:
        index.put(raw)
    raw = all_records[number]
    finished = Index(index.contents())
    finished.put(raw)
    wanted = finished.contents()
    for before, after in _single_steps(raw, index):
        order = _store_order(before[-1], after[-1])
        for stores in range(len(order) + 1):
            torn = bytearray(before[-1])
            for start, end in order[:stores]:
                torn[start:end] = after[-1][start:end]
            assert stores < len(order) or bytes(torn) == after[-1]
            crashed = Index([*before[:-1], bytes(torn)])
            for earlier in all_records[max(0, number - 2) : number]:
                crashed.put(earlier)
            crashed.put(raw)
            _assert_index_equal(crashed.contents(), wanted)


def _assert_index_equal(got: list[bytes], wanted: list[bytes]) -> None:
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        # The first entry of a later file counts its seconds from the predecessor's end; a kill after the begin time was
        # stored makes it zero seconds, the more exact value.
        first = 40 + 4 * SLOTS + 20 + 12
        masked = [bytes(data[:first]) + data[first + 4 :] for data in (ours, theirs)]
        assert masked[0] == masked[1]


def test_query_finds_every_record_of_a_key_across_files() -> None:
    index = Index([bytes(FILE_BYTES)])
    for raw in _records():
        index.put(raw)
    offsets = ffi.new("int64_t[64]")
    key_hash = lib.rmq_index_key_hash(b"Torn", 4, b"k1", 2)
    found = list(
        itertools.chain.from_iterable(
            list(offsets[0 : lib.rmq_index_query(file, key_hash, 0, 1 << 62, offsets, 64)]) for file in index.files
        )
    )
    places = list(itertools.accumulate(len(raw) for raw in [b"", *_records()]))
    assert sorted(set(found)) == [places[i] for i in (0, 2, 5, 7)]
