"""TimerLog and TimerWheel as the C core writes them: units, chains, file ends, and what a start makes of damage."""

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.requests.turns import finish
from ringmq.native import ffi, lib
from ringmq.store.inferred_config import config_without_index
from ringmq.store.layout import TIMER_WHEEL_FILE
from ringmq.store.message_store import MessageStore
from ringmq.timer.placement import place
from ringmq.timer.progress import Saved
from ringmq.timer.recovery import open_files
from ringmq.timer.timer_checkpoint import FILE as CHECKPOINT_FILE
from ringmq.timer.timer_checkpoint import TimerCheckpoint
from ringmq.timer.timer_damage import find_timer_damage
from ringmq.timer.timer_files import TimerFiles, TimerFilesFailedError
from ringmq.timer.timer_log import FOLDER, UNIT_BYTES, Magic
from ringmq.timer.timer_record import timer_record
from ringmq.timer.timer_scan import ScanRange, TimerScan
from tests.suite.samples import Sampled
from tests.timer.kit import SECRET, MemoryFiles, encode, held, joined

NOW_MS = 1_800_000_000_000
FILE_BYTES = 5 * UNIT_BYTES + 16 + 20
WINDOW = 20


def batch(**fields: Any) -> Any:
    index = {"is_listed": 1, "until_ns": 1 << 62, "secret": SECRET}
    return ffi.new(
        "struct rmq_timer_enqueue *", {"write_ms": NOW_MS, "open_ms": NOW_MS - 1000, "index": index, **fields}
    )


def random_record(dice: random.Random, number: int) -> bytes:
    out_ms = NOW_MS + 1000 * dice.randrange(-5, 45)
    pairs = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": dice.choice("ABC"), "UNIQ_KEY": f"k{number}"}
    if dice.random() < 0.1:
        pairs["TIMER_DEL_UNIQKEY"] = "A+k1"
    if dice.random() < 0.05:
        del pairs["TIMER_OUT_MS"]
    return encode(number, 100 * number, joined(pairs), store_ms=NOW_MS)


def enqueue(files: MemoryFiles, records: list[bytes], work: Any) -> None:
    """Append all, in as many calls as there are file ends."""
    units, of, kept = held(records)
    done = 0
    while done < len(records):
        taken = lib.rmq_timer_enqueue(files.struct, of + done, units + done, len(records) - done, work)
        assert taken >= 0
        done += taken
        if done < len(records):
            assert lib.rmq_timer_is_full(files.struct)
    assert kept


def scanned(files: MemoryFiles, wanted: ScanRange = ScanRange()) -> TimerScan:  # noqa: B008
    """Read the log and mend the wheel, as a start does."""
    ffi.memmove(files.chains, bytes(ffi.sizeof(files.chains)), ffi.sizeof(files.chains))
    scan = TimerScan(files.struct, wanted)
    finish(scan.steps())
    scan.compare(mends=True)
    return scan


def state(files: MemoryFiles) -> tuple[int, bytes]:
    return int(files.struct.log_end), bytes(ffi.buffer(files.wheel))


def test_units_and_chains_are_those_of_the_python_rule() -> None:
    dice, files = random.Random(5), MemoryFiles(60, FILE_BYTES, window_slots=WINDOW)
    records, work = [random_record(dice, number) for number in range(250)], batch()
    enqueue(files, records, work)
    expected: dict[int, list[tuple[int, Magic]]] = {}
    for data in records:
        record = timer_record(data, 1000)
        assert record is not None
        if record.out_ms is None:
            continue
        found = place(
            record.out_ms, write_ms=NOW_MS, open_ms=NOW_MS - 1000, is_delete=record.is_delete, window_slots=WINDOW,
            precision_ms=1000,
        )  # fmt: skip
        expected.setdefault(found.slot_ms, []).append((100 * record.queue_offset, found.magic))
    assert work.tally.without_time == 250 - sum(map(len, expected.values())) > 0
    for slot_ms, units in expected.items():
        chain = files.chain(slot_ms)
        assert [(unit.commit_log_offset, unit.magic) for unit in reversed(chain)] == units
        assert all(unit.slot_ms == slot_ms for unit in chain)
        assert slot_ms == NOW_MS - 1000 or all(unit.enqueue_ms == NOW_MS for unit in chain)
        deletes = sum(Magic.DELETE in magic for _, magic in units)
        assert lib.rmq_timer_count(files.struct, slot_ms) == len(units) - 2 * deletes
    first = min(slot_ms for slot_ms in expected)
    assert lib.rmq_timer_next_used(files.struct, first - 5000, first + 1) == first
    assert lib.rmq_timer_next_used(files.struct, first - 5000, first) == -1
    opened_ms, late_ms = ffi.new("int64_t *"), ffi.new("int64_t *")
    lib.rmq_timer_latest(files.struct, 0, opened_ms, late_ms)
    assert (opened_ms[0], late_ms[0]) == (NOW_MS - 1000, NOW_MS), "late ones tell of the open slot"
    year_ms = 365 * 86_400_000  # the clock has jumped by more than a round
    assert lib.rmq_timer_next_used(files.struct, first - year_ms, first + year_ms) == first
    assert lib.rmq_timer_next_used(files.struct, first - year_ms, first) == -1


def test_a_start_finds_the_end_and_the_slots_again() -> None:
    """The wheel is lost or of an earlier time: the log mends it."""
    dice, files = random.Random(6), MemoryFiles(30, FILE_BYTES, window_slots=WINDOW)
    enqueue(files, [random_record(dice, number) for number in range(120)], batch())
    end, wheel = state(files)
    for stale in (bytes(len(wheel)), half_filled(120 // 2)):
        ffi.memmove(files.wheel, stale, len(wheel))
        files.struct.log_end = 0
        scanned(files)
        assert state(files) == (end, wheel)


def half_filled(count: int) -> bytes:
    """The wheel of the same records, without the last ones."""
    dice, files = random.Random(6), MemoryFiles(30, FILE_BYTES, window_slots=WINDOW)
    enqueue(files, [random_record(dice, number) for number in range(120)][:count], batch())
    return state(files)[1]


def test_a_log_that_is_cut_at_any_byte_of_its_last_unit_ends_before_it(sampled: Sampled) -> None:
    files = MemoryFiles(4, FILE_BYTES)
    pairs = joined({"TIMER_OUT_MS": str(NOW_MS + 7000), "REAL_TOPIC": "A"})
    records = [encode(number, 100 * number, pairs, store_ms=NOW_MS) for number in range(9)]
    enqueue(files, records, batch())
    end, wheel = state(files)
    last = end - UNIT_BYTES
    log = files.logs[last // FILE_BYTES]
    whole = bytes(ffi.buffer(log))
    for cut in sampled(range(UNIT_BYTES), 12):
        at = last % FILE_BYTES
        ffi.memmove(log, whole[: at + cut] + bytes(FILE_BYTES - at - cut), FILE_BYTES)
        ffi.memmove(files.wheel, wheel, len(wheel))
        scan = scanned(files)
        if (
            files.struct.log_end > last
        ):  # its last bytes are zeros anyway, or the record that it names will not be found
            unit = ffi.new("struct rmq_timer_unit *")
            assert lib.rmq_timer_unit_at(files.struct, last, unit)
            lib.rmq_timer_drop_last(files.struct, unit)
            scan.compare(mends=True)
        assert files.struct.log_end == last
        assert [unit.commit_log_offset for unit in files.chain(NOW_MS + 7000)] == [100 * n for n in reversed(range(8))]


def test_records_for_a_slot_in_memory_join_it() -> None:
    files = MemoryFiles(4, FILE_BYTES)
    slot = ffi.gc(lib.rmq_timer_slot_open(NOW_MS + 7000, 100, 0, SECRET), lib.rmq_timer_slot_close)
    delivered = ffi.new("uint64_t[]", [1])
    work = batch(slots=[slot, ffi.NULL], delivered=delivered, delivered_count=1)
    pairs = {"TIMER_OUT_MS": str(NOW_MS + 7000), "TIMER_DELIVER_MS": str(NOW_MS + 7400), "REAL_TOPIC": "A"}
    enqueue(files, [encode(number, 100 * number, joined(pairs), store_ms=NOW_MS) for number in range(3)], work)
    assert lib.rmq_timer_slot_waiting(slot) == 2 and work.tally.repeated == 1 and work.tally.enqueued == 3
    assert lib.rmq_timer_slot_next_ms(slot) == NOW_MS + 7400


def test_a_log_that_is_rebuilt_leaves_out_what_was_delivered() -> None:
    files = MemoryFiles(4, FILE_BYTES, window_slots=WINDOW)
    work = batch(open_ms=NOW_MS, write_ms=NOW_MS, known_offset=3, known_ms=NOW_MS)
    ages_and_outs = [
        (10_000, NOW_MS - 1000, "delivered"),
        (10_000, NOW_MS, "waits"),
        (60_000, NOW_MS + 5000, "rolled: a copy of it waits"),
        (10_000, NOW_MS - 1000, "behind the known offset"),
    ]
    records = [
        encode(
            number, 100 * number, joined({"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "A"}), store_ms=NOW_MS - age_ms
        )
        for number, (age_ms, out_ms, _) in enumerate(ages_and_outs)
    ]  # fmt: skip
    enqueue(files, records, work)
    assert (work.tally.done_before, work.tally.enqueued) == (2, 2)
    assert [unit.commit_log_offset for unit in files.chain(NOW_MS)] == [300, 100]


def test_a_rolled_message_has_the_same_slot_whenever_it_is_written() -> None:
    """Else a slave would roll again what its master has rolled. A stock master rolls from its write on."""
    found = {}
    for late_ms, by_write in ((0, 0), (3000, 0), (3000, 1)):
        files = MemoryFiles(1, FILE_BYTES, window_slots=WINDOW)
        pairs = joined({"TIMER_OUT_MS": str(NOW_MS + 90_000), "REAL_TOPIC": "A"})
        work = batch(write_ms=NOW_MS + late_ms, open_ms=NOW_MS, rolls_by_write=by_write)
        enqueue(files, [encode(0, 0, pairs, store_ms=NOW_MS + 400)], work)
        found[late_ms, by_write] = lib.rmq_timer_next_used(files.struct, NOW_MS, NOW_MS + 60_000)
    assert found == {(0, 0): NOW_MS + 20_000, (3000, 0): NOW_MS + 20_000, (3000, 1): NOW_MS + 23_000}


PAGES = 4 * os.sysconf("SC_PAGESIZE")
ACCESSES: dict[str, Callable[[TimerFiles], object]] = {
    "the wheel": lambda files: TimerScan(files.struct, ScanRange()).compare(mends=False),
    "a unit": lambda files: files.unit(PAGES),
    "the log's end": lambda files: finish(TimerScan(files.struct, ScanRange(PAGES * 2, 0, PAGES)).steps()),
}


def filled(root: Path) -> TimerFiles:
    """Two log files with units, the second one half full."""
    files = TimerFiles(root, 1000, WINDOW, PAGES)
    pairs = joined({"TIMER_OUT_MS": str(NOW_MS), "REAL_TOPIC": "A"})
    for number in range(PAGES // UNIT_BYTES * 3 // 2):
        files.make_room(1)
        units, of, kept = held([encode(number, 100 * number, pairs, store_ms=NOW_MS)])
        assert lib.rmq_timer_enqueue(files.struct, of, units, 1, batch()) == 1 and kept
    files.check()
    return files


@pytest.mark.parametrize("access", ACCESSES)
def test_files_with_a_page_that_the_disk_does_not_give_are_deleted(tmp_path: Path, access: str) -> None:
    """A page with an I/O error and one behind the end of a file both come as SIGBUS."""
    path = tmp_path / TIMER_WHEEL_FILE if access == "the wheel" else tmp_path / FOLDER / f"{PAGES:020d}"
    with closing(filled(tmp_path)) as files:
        os.truncate(path, 0)
        ACCESSES[access](files)
        with pytest.raises(TimerFilesFailedError, match=f"{path}: a page cannot be read or written"):
            files.check()
        assert not (tmp_path / TIMER_WHEEL_FILE).exists() and not [*(tmp_path / FOLDER).iterdir()]


def test_a_store_into_a_page_that_is_missing_is_told_as_well(tmp_path: Path) -> None:
    with closing(filled(tmp_path)) as files:
        os.truncate(tmp_path / FOLDER / f"{PAGES:020d}", 0)
        units, of, _kept = held([encode(9, 900, joined({"TIMER_OUT_MS": str(NOW_MS)}), store_ms=NOW_MS)])
        lib.rmq_timer_enqueue(files.struct, of, units, 1, batch())
        with pytest.raises(TimerFilesFailedError):
            files.check()


def test_a_log_without_its_wheel_is_rebuilt(tmp_path: Path) -> None:
    """A start reads the units of the newest files alone, so it would miss slots of older ones."""
    filled(tmp_path).close()
    (tmp_path / TIMER_WHEEL_FILE).unlink()
    lines: list[str] = []
    saved = Saved()
    opening = open_files(
        tmp_path, saved, precision_ms=1000, window_slots=WINDOW, file_bytes=PAGES, log_line=lines.append
    )
    with closing(finish(opening)) as files:
        assert files.file_count == 0 and files.is_new
    assert lines == [f"{tmp_path / TIMER_WHEEL_FILE} is missing: wheel and log are rebuilt from the timer topic"]


def test_a_stock_store_of_a_finer_precision_is_sound_though_all_is_delivered(tmp_path: Path) -> None:
    """Slots of 100 ms are no slots of seconds."""
    with closing(TimerFiles(tmp_path, 100, WINDOW, PAGES)) as files:
        files.make_room(40)
        for number in range(40):
            fields = {
                "enqueue_ms": NOW_MS - 5000, "slot_ms": NOW_MS - 2000 + number // 2 * 100, "magic": int(Magic.DEFAULT),
                "commit_log_offset": 100 * number, "size": 100,
            }  # fmt: skip
            assert lib.rmq_timer_append(files.struct, ffi.new("struct rmq_timer_unit *", fields)) == 1
        end = files.log_end
    path = tmp_path / FOLDER / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for at in range(UNIT_BYTES, end + 1, UNIT_BYTES):
        data[at - 8 : at] = bytes(8)  # the seal
    path.write_bytes(data)
    for name in ("commitlog", "config"):
        (tmp_path / name).mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 16))
    (tmp_path / "config" / CHECKPOINT_FILE).write_bytes(TimerCheckpoint(NOW_MS, end, 40, 40).encode_file())
    assert find_timer_damage(MessageStore(config_without_index(tmp_path))) == []
    lines: list[str] = []
    opening = open_files(
        tmp_path, Saved(NOW_MS, 40, flushed_position=end), precision_ms=1000, window_slots=WINDOW, file_bytes=PAGES,
        log_line=lines.append,
    )  # fmt: skip
    finish(opening).close()
    assert len(lines) == 1 and "the wheel has a precision of 100 ms, timerPrecisionMs is 1000" in lines[0]
