"""Each bit of TimerLog and TimerWheel flipped: what waits is read as it was written, or the damage is told."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from plane_kit import Kit

from ringmq.broker.requests.turns import finish
from ringmq.native import ffi, lib
from ringmq.store.queue_reader import QueueReader, RecordBatch
from ringmq.timer.timer_log import UNIT_BYTES, seal
from ringmq.timer.timer_scan import ScanRange, TimerScan
from tests.timer.kit import SECRET, MemoryFiles, joined

OPEN_MS, STEP_MS, WINDOW = 1_800_000_000_000, 1000, 20
FILE_BYTES = 5 * UNIT_BYTES + 16 + 20
SLOT_BYTES, SEAL_AT = lib.RMQ_TIMER_SLOT_BYTES, 44
DUE_S = (5, 9, 5, 7, 90, 5, 9, 12, 9, 7, 5, 16)
"""Seconds from OPEN_MS to each message. One is alone in its slot, one waits for longer than the window."""
DELETE = 6
"""The message that is a delete of the one before it in its slot."""
DELAY_AT = 24
Messages = list[tuple[int, int, int, int]]


@dataclass
class Store:
    """TimerLog of three files over memory, and a CommitLog with the records."""

    kit: Kit
    body: bytes = b"x"
    files: MemoryFiles = field(default_factory=lambda: MemoryFiles(4, FILE_BYTES, window_slots=WINDOW))

    def __post_init__(self) -> None:
        self.work = ffi.new(
            "struct rmq_timer_enqueue *", {"write_ms": OPEN_MS, "open_ms": OPEN_MS, "rolls_by_write": 1}
        )
        self.work.index.secret, self.work.index.is_listed, self.work.index.until_ns = SECRET, 1, 1 << 62
        topic = self.kit.topic(b"rmq_sys_wheel_timer")
        with self.kit.writer() as write, self.kit.dispatcher() as dispatch:
            for number, due_s in enumerate(DUE_S):
                pairs = {
                    "TIMER_OUT_MS": str(OPEN_MS + due_s * STEP_MS), "REAL_TOPIC": "A", "UNIQ_KEY": f"k{number}",
                    "TIMER_DELIVER_MS": str(OPEN_MS + due_s * STEP_MS + 1 + number),
                }  # fmt: skip
                if number == DELETE:
                    pairs["TIMER_DEL_UNIQKEY"] = "A+k1"
                self.kit.request(topic, 0, self.body, properties=joined(pairs))
            write()
            self.kit.completions()
            while self.kit.marks.dispatched_offset < self.kit.marks.append_offset:
                dispatch()
        with self.reader() as reader:
            batch, done = RecordBatch(64), 0
            reader.hold(batch, self.kit.queue_slot(topic, 0), 0)
            while done < batch.count:
                lib.rmq_timer_is_full(self.files.struct)
                done += lib.rmq_timer_enqueue(
                    self.files.struct, batch.records + done, batch.units + done, batch.count - done, self.work
                )
            batch.release()
        self.flushed = int(self.files.struct.log_end)
        self.touched = {self.index_of(unit) for unit in self.units()}

    def reader(self) -> QueueReader:
        return QueueReader(self.kit.plane, 8, 8)

    @staticmethod
    def index_of(unit: Any) -> int:
        return int(unit.slot_ms) // STEP_MS % lib.RMQ_TIMER_SLOTS

    def unit(self, position: int) -> Any | None:
        unit = ffi.new("struct rmq_timer_unit *")
        return unit if lib.rmq_timer_unit_at(self.files.struct, position, unit) else None

    def positions(self) -> list[int]:
        return [file * FILE_BYTES + at * UNIT_BYTES for file in range(4) for at in range(5)][: len(DUE_S)]

    def units(self) -> Iterator[Any]:
        return filter(None, map(self.unit, self.positions()))

    def bytes_at(self, position: int, count: int = UNIT_BYTES) -> Any:
        return ffi.buffer(self.files.logs[position // FILE_BYTES] + position % FILE_BYTES, count)

    def unseal(self) -> None:
        """Make it a log of stock."""
        for position in self.positions():
            self.bytes_at(position)[SEAL_AT:] = bytes(8)

    def scan(self, wanted: ScanRange | None = None) -> TimerScan:
        for index in self.touched | {self.index_of(unit) for unit in self.units()}:
            self.files.chains[index].round = 0
        self.files.struct.damaged = 0
        scan = TimerScan(self.files.struct, wanted or ScanRange(self.flushed, OPEN_MS))
        finish(scan.steps())
        return scan

    def delivered(self, reader: QueueReader) -> Messages | None:
        """Read all slots. None: a walk has met damage."""
        found: Messages = []
        keys, from_ms, end_ms = ffi.new("uint64_t[]", 64), OPEN_MS, OPEN_MS + 100 * STEP_MS
        while (slot_ms := lib.rmq_timer_next_used(self.files.struct, from_ms, end_ms)) >= 0:
            slot = ffi.gc(lib.rmq_timer_slot_open(slot_ms, 64, 1 << 40, SECRET), lib.rmq_timer_slot_close)
            lib.rmq_timer_slot_extend(slot, slot_ms + STEP_MS)
            walk = ffi.new("struct rmq_timer_walk *", {"slot_ms": slot_ms})
            lib.rmq_timer_walk_begin(self.files.struct, walk)
            while not walk.is_over and not self.files.struct.damaged:
                assert not lib.rmq_timer_walk(self.files.struct, reader.native, slot, walk, 2, self.work)
            if self.files.struct.damaged:
                return None
            for key in keys[0 : lib.rmq_timer_slot_take(slot, 1 << 62, keys, 64)]:
                unit = self.unit(lib.rmq_timer_position(self.files.struct, lib.rmq_timer_slot_unit(key)))
                assert unit is not None
                at_ms = lib.rmq_timer_slot_exact_ms(slot, key)
                found.append((at_ms, int(unit.commit_log_offset), int(unit.size), int(unit.magic)))
            from_ms = slot_ms + STEP_MS
        return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Kit(tmp_path / "store", segment_bytes=1 << 20))


def flips(data: Any) -> Iterator[int]:
    """Flip each bit, one at a time."""
    for bit in range(8 * len(data)):
        byte = data[bit // 8][0]
        data[bit // 8] = bytes([byte ^ 1 << bit % 8])
        yield bit
        data[bit // 8] = bytes([byte])


def test_the_seal_is_that_of_python(store: Store) -> None:
    for position in store.positions():
        data = bytes(store.bytes_at(position))
        assert int.from_bytes(data[SEAL_AT:]) == seal(data, position)


def test_each_bit_of_a_sealed_unit_is_told_at_the_start(store: Store) -> None:
    with store.reader() as reader:
        store.scan()
        sound = store.delivered(reader)
    assert sound is not None and len(sound) == len(DUE_S) - 1
    for number, position in enumerate(store.positions()):
        for bit in flips(store.bytes_at(position)):
            fault = store.scan().log_fault(0)
            assert f"position {position}: no unit as it was written" in fault, (number, bit)
    assert not store.scan().log_fault(0)


def test_each_bit_of_a_sealed_unit_is_told_by_a_walk(store: Store) -> None:
    """The disk may change it after the start."""
    store.scan()
    with store.reader() as reader:
        for position in store.positions():
            for bit in flips(store.bytes_at(position)):
                store.files.struct.damaged = 0
                assert store.delivered(reader) is None, bit
                assert store.files.struct.damaged == position + 1


def test_each_bit_of_a_unit_of_stock_is_told_or_changes_nothing(store: Store) -> None:
    """Chains, records and the wheel tell."""
    store.unseal()
    with store.reader() as reader:
        store.scan()
        sound, told = store.delivered(reader), 0
        assert sound is not None
        for position in store.positions():
            for bit in flips(store.bytes_at(position)):
                scan = store.scan()
                if scan.log_fault(0) or store.delivered(reader) in (None, sound):
                    told += 1
                    continue
                scan.compare(mends=False)
                assert "belongs to another slot" in scan.log_fault(0), (position, bit)
                assert bit // 8 in range(16, 28), "the slot of a unit that is alone in it"
    assert told > 8 * 36 * len(DUE_S)


SEGMENT_BYTES = 4096


@pytest.fixture
def expired(tmp_path: Path) -> tuple[Store, int]:
    """A log of stock of which retention has taken some records, and the number of those."""
    kit = Kit(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    kit.create_segment(SEGMENT_BYTES)
    store = Store(kit, bytes(300))
    store.unseal()
    count = sum(int(unit.commit_log_offset) < SEGMENT_BYTES for unit in store.units())
    assert 2 < count < len(DUE_S) - 2
    kit.marks.min_offset = SEGMENT_BYTES
    (tmp_path / "store" / "commitlog" / f"{0:020d}").unlink()
    return store, count


def test_units_of_stock_whose_records_are_gone_are_left_out(expired: tuple[Store, int]) -> None:
    store, count = expired
    with store.reader() as reader:
        assert not store.scan().log_fault(0)
        found = store.delivered(reader)
    assert found is not None, store.files.struct.damaged
    assert sorted(row[1] for row in found) == [int(unit.commit_log_offset) for unit in store.units()][count:]


def test_an_offset_of_stock_before_those_of_earlier_units_is_told(expired: tuple[Store, int]) -> None:
    """Retention would have taken their records, too."""
    store, count = expired
    position = store.positions()[count + 1]
    offset = store.bytes_at(position)[28:36]
    store.bytes_at(position)[28:36] = (int.from_bytes(offset) & ~SEGMENT_BYTES).to_bytes(8)
    store.scan()
    with store.reader() as reader:
        assert store.delivered(reader) is None and store.files.struct.damaged == position + 1


def test_each_bit_of_a_blank_is_told(store: Store) -> None:
    for bit in flips(store.bytes_at(5 * UNIT_BYTES, 16)):
        assert store.scan().log_fault(0), bit
    for _ in flips(store.bytes_at(5 * UNIT_BYTES + 16, 20)):
        assert not store.scan().log_fault(0), "nothing is behind it"


def test_bits_behind_the_log_are_no_units(store: Store) -> None:
    end = store.flushed
    for _ in flips(store.bytes_at(end)):
        assert not store.scan().log_fault(0) and store.files.struct.log_end == end


@pytest.mark.parametrize("due_s", [5, 12])
def test_each_bit_of_a_slot_is_mended(store: Store, due_s: int) -> None:
    index = (OPEN_MS + due_s * STEP_MS) // STEP_MS % lib.RMQ_TIMER_SLOTS
    slot = ffi.buffer(store.files.wheel + index * SLOT_BYTES, SLOT_BYTES)
    sound, scan = bytes(slot), store.scan()
    scan.compare(mends=True)
    assert not scan.wheel_fault()
    for bit in flips(slot):
        scan.compare(mends=True)
        assert scan.differing_slots == 1 and not scan.log_fault(0), bit
        assert f"1 slots of TimerWheel from {OPEN_MS + due_s * STEP_MS} ms on differ" in scan.wheel_fault()
        assert bytes(slot) == sound, bit


@pytest.mark.parametrize("kept", ["units of stock", "sealed units"])
def test_counts_that_stock_has_left_behind_are_mended_without_a_word(store: Store, kept: str) -> None:
    """Its recovery makes units behind the wheel the last ones of their slots, and counts none of them."""
    if kept == "units of stock":
        store.unseal()
    wheel, sound = ffi.buffer(store.files.wheel), bytes(ffi.buffer(store.files.wheel))
    for index in store.touched:
        wheel[index * SLOT_BYTES + 24 : index * SLOT_BYTES + 28] = bytes(4)
    scan = store.scan(ScanRange(store.flushed, OPEN_MS, is_of_stock=kept == "sealed units"))
    scan.compare(mends=True)
    assert not scan.wheel_fault() and not scan.log_fault(0) and bytes(wheel) == sound


def test_a_wheel_of_zeros_is_mended(store: Store) -> None:
    wheel = ffi.buffer(store.files.wheel)
    sound = bytes(wheel)
    wheel[:] = bytes(len(sound))
    scan = store.scan()
    scan.compare(mends=True)
    assert scan.differing_slots == len(store.touched) and bytes(wheel) == sound


def test_slots_of_units_that_were_not_on_disk_are_mended_without_a_word(store: Store) -> None:
    """A death leaves them so."""
    wheel = ffi.buffer(store.files.wheel)
    sound = bytes(wheel)
    wheel[:] = bytes(len(sound))
    scan = store.scan(ScanRange(0, OPEN_MS))
    scan.compare(mends=True)
    assert not scan.wheel_fault() and bytes(wheel) == sound


def test_a_slot_of_units_behind_the_end_of_the_log_is_emptied(store: Store) -> None:
    """A power cut has left a wheel that is newer than the log."""
    last = store.positions()[-1]
    unit = store.unit(last)
    store.bytes_at(last)[:] = bytes(UNIT_BYTES)
    scan = store.scan(ScanRange(last, OPEN_MS))
    scan.compare(mends=True)
    assert unit is not None and not scan.wheel_fault() and not scan.log_fault(0)
    at = store.index_of(unit) * SLOT_BYTES
    assert bytes(ffi.buffer(store.files.wheel + at, SLOT_BYTES)) == bytes(SLOT_BYTES)


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("wheel", ["whole", "zeros"])
def test_a_first_file_that_is_missing_is_told(store: Store, wheel: str, is_sealed: bool) -> None:
    """The wheel and chains tell, or the progress. Retention takes records and units alike."""
    first = store.unit(FILE_BYTES)
    assert first is not None
    if not is_sealed:
        store.unseal()
    if wheel == "zeros":
        ffi.memmove(store.files.wheel, bytes(ffi.sizeof(store.files.wheel)), ffi.sizeof(store.files.wheel))
    struct = store.files.struct
    store.files.table = ffi.new("uint8_t *[]", store.files.logs[1:])
    struct.log, struct.log_begin, struct.file_count = store.files.table, FILE_BYTES, 3
    for waits_from, oldest in itertools.product((0, FILE_BYTES), (0, int(first.commit_log_offset), None)):
        scan = store.scan(ScanRange(store.flushed, OPEN_MS, waits_from))
        scan.compare(mends=False)
        assert bool(scan.log_fault(oldest)) == (oldest == 0), (waits_from, oldest)
    after = store.scan(ScanRange(store.flushed, OPEN_MS + (WINDOW + 1) * STEP_MS, FILE_BYTES))
    after.compare(mends=False)
    assert not after.log_fault(0), "no message waits"
