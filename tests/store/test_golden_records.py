"""Every record of the golden store: decoded in Python and C, encoded again, queued and indexed as stock did."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from ringmq.native import ffi, lib
from ringmq.store import record as records
from ringmq.store.delay_levels import native_delay_levels
from ringmq.store.message_store import MessageStore
from tests.store.golden_stores import basic_config

ENTRY = dict[str, Any]


@pytest.fixture(scope="module")
def store(golden_basic: Path) -> MessageStore:
    return MessageStore(basic_config(golden_basic))


@pytest.fixture(scope="module")
def raws(store: MessageStore, manifest: list[ENTRY], expected: ENTRY) -> list[bytes]:
    end = expected["commitLogMaxOffset"]
    found = [store.commit_log.raw_at(entry["commitLogOffset"], end) for entry in manifest]
    return [bytes(raw) for raw in found if raw is not None]


def test_scan_meets_every_record_and_only_them(store: MessageStore, manifest: list[ENTRY], expected: ENTRY) -> None:
    places = list(store.commit_log.places(0, expected["commitLogMaxOffset"]))
    assert places == [(entry["commitLogOffset"], entry["storeSize"]) for entry in manifest]


def test_python_decodes_every_record(raws: list[bytes], manifest: list[ENTRY]) -> None:
    assert len(raws) == len(manifest)
    for raw, entry in zip(raws, manifest, strict=True):
        result, record = records.parse_record(raw, entry["commitLogOffset"])
        assert result == records.OK and record is not None
        got = {
            "magic": f"{record.magic:08X}", "topic": record.topic, "queueId": record.queue_id,
            "queueOffset": record.queue_offset, "commitLogOffset": record.physical_offset, "storeSize": record.size,
            "flag": record.flag, "sysFlag": record.sys_flag, "bornTimestamp": record.born_time_ms,
            "storeTimestamp": record.store_time_ms, "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset, "properties": record.properties,
            "bodyCRC": record.body_crc, "storedBodyLength": len(record.body),
            "storedBodyCrc32": records.crc32(record.body), "offsetMsgId": records.offset_message_id(record),
            "storeHost": record.store_host.replace("[", "").replace("]", ""),
        }  # fmt: skip
        assert got == {name: entry[name] for name in got}
        if record.sys_flag & 0x701 == 0x301:
            assert hashlib.sha256(zlib.decompress(record.body)).hexdigest() == entry["bodySha256"]


def test_c_parses_every_record_like_python(raws: list[bytes]) -> None:
    view = ffi.new("struct rmq_record_view *")
    for raw in raws:
        data = ffi.from_buffer(raw)
        assert lib.rmq_record_parse(data, len(raw), 1, view) == records.OK
        _, record = records.parse_record(raw)
        assert record is not None
        assert record.topic.encode() == raw[view.topic_at : view.topic_at + view.topic_length]
        assert record.body == raw[view.body_at : view.body_at + view.body_length]
        assert record.properties_raw == raw[view.properties_at : view.properties_at + view.properties_length]
        assert (record.queue_id, record.queue_offset, record.physical_offset) == (
            view.queue_id, view.queue_offset, view.physical_offset,
        )  # fmt: skip
        assert (record.store_time_ms, record.born_time_ms, record.sys_flag, record.reconsume_times) == (
            view.store_time_ms, view.born_time_ms, view.sys_flag, view.reconsume_times,
        )  # fmt: skip


def _host(text: str) -> tuple[bytes, int]:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")).packed, int(port)


def _encode(entry: ENTRY, body: bytes, properties: list[bytes]) -> bytes:
    """Encode from the manifest's fields, properties in the given pieces."""
    topic = entry["topic"].encode()
    value = ffi.new("struct rmq_record_in *")
    keep = [ffi.from_buffer(body), ffi.from_buffer(topic), *map(ffi.from_buffer, properties)]
    value.body, value.body_length = keep[0], len(body)
    value.topic, value.topic_length = keep[1], len(topic)
    for i, piece in enumerate(properties):
        value.properties[i] = keep[2 + i]
        value.properties_length[i] = len(piece)
    value.queue_offset, value.physical_offset = entry["queueOffset"], entry["commitLogOffset"]
    value.born_time_ms, value.store_time_ms = entry["bornTimestamp"], entry["storeTimestamp"]
    value.prepared_transaction_offset = entry["preparedTransactionOffset"]
    value.queue_id, value.flag, value.sys_flag = entry["queueId"], entry["flag"], entry["sysFlag"]
    value.reconsume_times = entry["reconsumeTimes"]
    for host, name in ((value.born_host, "born"), (value.store_host, "store")):
        packed, port = _host(entry[f"{name}Host"])
        ffi.memmove(host, packed, len(packed))
        setattr(value, f"{name}_port", port)
    room = ffi.new("uint8_t[]", entry["storeSize"])
    assert lib.rmq_record_size(value) == entry["storeSize"]
    assert lib.rmq_record_encode(room, entry["storeSize"] - 1, value) == -28
    assert lib.rmq_record_encode(room, entry["storeSize"], value) == entry["storeSize"]
    return bytes(ffi.buffer(room))


def test_encode_gives_the_golden_bytes(raws: list[bytes], manifest: list[ENTRY]) -> None:
    versions = set()
    for raw, entry in zip(raws, manifest, strict=True):
        _, record = records.parse_record(raw)
        assert record is not None
        assert _encode(entry, record.body, [record.properties_raw]) == raw
        versions.add(record.magic)
    assert len(versions) == 2


def test_encode_joins_property_pieces(raws: list[bytes], manifest: list[ENTRY]) -> None:
    for raw, entry in list(zip(raws, manifest, strict=True))[:200]:
        _, record = records.parse_record(raw)
        assert record is not None
        pairs = record.properties_raw.split(b"\x02")[:-1]
        pieces = [b"\x02".join(pairs[:1]), b"", b"\x02".join(pairs[1:])]  # without their final 0x02
        assert _encode(entry, record.body, pieces) == raw


def test_encode_refuses_what_does_not_fit() -> None:
    entry = {"topic": "t", "queueOffset": 0, "commitLogOffset": 0}
    value = ffi.new("struct rmq_record_in *")
    piece = ffi.new("uint8_t[]", 32768)
    value.properties[0], value.properties_length[0] = piece, 32766
    assert lib.rmq_record_size(value) == 91 + 32767  # the missing final 0x02 counts
    value.properties_length[0] = 32767
    assert lib.rmq_record_size(value) == -90, entry
    value.properties_length[0] = 0
    value.body_length = (1 << 31) - 1
    assert lib.rmq_record_size(value) == -90


def _dispatch_keys(raw: bytes) -> tuple[Any, Any, Any]:
    view, keys = ffi.new("struct rmq_record_view *"), ffi.new("struct rmq_dispatch_keys *")
    data = ffi.from_buffer(raw)
    assert lib.rmq_record_parse(data, len(raw), 0, view) == 1
    lib.rmq_dispatch_keys_find(data + view.properties_at, view.properties_length, keys)
    return view, keys, data


def test_dispatch_fields(store: MessageStore, raws: list[bytes], manifest: list[ENTRY]) -> None:
    levels = native_delay_levels(store.config.delay_levels_ms)
    for raw, entry in zip(raws, manifest, strict=True):
        view, keys, data = _dispatch_keys(raw)
        tags_code = lib.rmq_tags_code(data + view.topic_at, view.topic_length, keys, view.store_time_ms, levels)
        assert tags_code == entry["tagsCode"]
        got_keys = bytes(ffi.buffer(keys.keys, keys.keys_length)).decode() if keys.keys else None
        uniq_key = bytes(ffi.buffer(keys.uniq_key, keys.uniq_key_length)).decode() if keys.uniq_key else None
        assert (got_keys, uniq_key) == (entry["keys"], entry["uniqKey"])
        is_batch = entry["topic"] == "GoldBatchCQ"
        if entry["batchSize"] > 0:
            assert lib.rmq_message_count(keys, view.sys_flag, is_batch) == entry["batchSize"]


def test_index_replays_byte_for_byte(golden_basic: Path, raws: list[bytes], tmp_path: Path) -> None:
    """Putting every record again, each one twice as a replay would, ends in the bytes that stock wrote."""
    slots, entries = 100, 400
    size = lib.rmq_index_file_size(slots, entries)
    golden = sorted((golden_basic / "index").iterdir())
    buffers: list[Any] = []
    files: list[Any] = []

    def roll() -> None:
        buffers.append(ffi.new("uint64_t[]", size // 8 + 1))
        file = ffi.new("struct rmq_index *")
        base = ffi.cast("uint8_t *", buffers[-1])
        assert lib.rmq_index_attach(file, base, size, slots, entries, 1) == 0
        if files:
            lib.rmq_index_prefill(file, files[-1])
        files.append(file)

    def put(raw: bytes) -> int:
        view, keys, data = _dispatch_keys(raw)
        done = ffi.new("uint32_t *", lib.rmq_index_replayed(
            files[-1], files[-2] if len(files) > 1 else ffi.NULL, view.physical_offset))  # fmt: skip
        if done[0] == 0xFFFFFFFF:
            return 0
        total = 0
        while True:
            result = lib.rmq_index_put_record(files[-1], data + view.topic_at, view.topic_length, keys, view.sys_flag,
                                              view.physical_offset, view.store_time_ms, done)  # fmt: skip
            if result != -28:
                return total + int(result)
            roll()
            total += 1

    roll()
    for i, raw in enumerate(raws):
        put(raw)
        assert put(raw) == 0
        for earlier in raws[max(0, i - 3) : i]:
            assert put(earlier) == 0
    assert len(files) == len(golden)
    for buffer, file, path in zip(buffers, files, golden, strict=True):
        assert bytes(ffi.buffer(buffer))[:size] == path.read_bytes()
        assert lib.rmq_index_check(file) == 0


def test_consume_queue_units(store: MessageStore, manifest: list[ENTRY], expected: ENTRY) -> None:
    """Each unit of each queue is what the manifest's record asks for, and none is left over."""
    end = expected["commitLogMaxOffset"]
    wanted: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
    for entry in manifest:
        if entry["sysFlag"] & 0xC not in (0x4, 0xC):
            unit = (entry["queueOffset"], entry["commitLogOffset"], entry["storeSize"], entry["tagsCode"])
            wanted.setdefault((entry["topic"], entry["queueId"]), []).append(unit)
    names = {(name.topic, name.queue_id) for name in store.queue_names()}
    assert names == wanted.keys()
    for key, units in wanted.items():
        queue = store.queue(*key)
        assert queue is not None
        got = [(u.queue_offset, u.commit_log_offset, u.size, u.tags_code) for u in queue.units(0, 1 << 40)]
        assert got == units
        assert queue.recovered_end() == queue.trusted_end() == (queue.max_offset(end), units[-1][1] + units[-1][2])


def test_c_unit_codec() -> None:
    units = ffi.new("struct rmq_cq_unit[]", 3)
    for i, (offset, size, tags) in enumerate(((0, 91, 0), (1 << 40, 7, -5), (12, 1, -(1 << 63)))):
        units[i].commit_log_offset, units[i].size, units[i].tags_code = offset, size, tags
    to = ffi.new("uint8_t[]", 80)
    lib.rmq_cq_encode(to, units, 3)
    raw = bytes(ffi.buffer(to))
    assert list(struct.iter_unpack(">qiq", raw[:60])) == [(0, 91, 0), (1 << 40, 7, -5), (12, 1, -(1 << 63))]
    back = ffi.new("struct rmq_cq_unit[]", 4)
    assert [lib.rmq_cq_decode(to + 20 * i, back + i) for i in range(4)] == [1, 1, 1, 0]
    assert (back[1].commit_log_offset, back[1].size, back[1].tags_code) == (1 << 40, 7, -5)


def test_c_batch_unit_codec(golden_basic: Path) -> None:
    golden = (golden_basic / "batchconsumequeue" / "GoldBatchCQ" / "0" / ("0" * 20)).read_bytes()
    unit, to = ffi.new("struct rmq_cq_batch_unit *"), ffi.new("uint8_t[]", 46)
    data = ffi.from_buffer(golden)
    for at in range(0, len(golden), 46):
        assert lib.rmq_cq_batch_decode(data + at, unit) == 1
        lib.rmq_cq_batch_encode(to, unit)
        assert bytes(ffi.buffer(to)) == golden[at : at + 46]


def _segments(text: str) -> Iterator[str]:
    yield from (text[:i] for i in range(len(text) + 1))


@pytest.mark.parametrize(
    "text", ["", "TagA", "schlüssel-3-键", "a😀b", "\x7f\x80\u07ff\u0800\uffff\U0010ffff", "x" * 99]
)
def test_java_hash(text: str) -> None:
    assert lib.rmq_java_hash(text.encode(), len(text.encode())) == records.java_hash(text)
    for head in _segments(text):
        seed = lib.rmq_java_hash(head.encode(), len(head.encode()))
        tail = text[len(head) :].encode()
        assert lib.rmq_java_hash_from(seed, tail, len(tail)) == records.java_hash(text)


def test_a_scan_passes_a_foreign_place(raws: list[bytes]) -> None:
    data = raws[0] + raws[2]  # the second one names another offset
    rows = ffi.new("struct rmq_record_view[]", 4)
    at, reason = ffi.new("uint64_t *"), ffi.new("int *")
    assert lib.rmq_log_scan(ffi.from_buffer(data), 0, len(data), 0, 1, rows, 4, at, reason) == 2
    assert (at[0], reason[0]) == (len(data), records.END)
    assert (rows[1].position, rows[1].physical_offset != rows[1].position) == (len(raws[0]), True)
