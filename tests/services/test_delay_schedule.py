"""The delayed messages that are due: C and Python agree, and the cases of the clock."""

import json
import random
import zlib
from pathlib import Path

import pytest

from ringmq.broker.requests.turns import finish
from ringmq.ipc.ports import mark_of
from ringmq.native import ffi, lib
from ringmq.remoting.config_beans import DataVersion
from ringmq.services.delay.progress import (
    Progress,
    following_marks,
    load_progress,
    save_progress,
    stock_offsets,
    stock_text,
)
from ringmq.services.delay.schedule import IDLE_MS, LOOK_MS, Level, Schedule, WaitingUnit, due_units
from ringmq.services.log_view import LogBounds, LogView
from ringmq.store.config_files import ConfigFileError, load_config
from tests.store.copy_kit import stored

HOUR_MS = 3_600_000
T0 = 1_700_000_000_000


def both(units: list[WaitingUnit], now_ms: int, delay_ms: int, dice: random.Random | None = None) -> tuple[int, int]:
    """C and Python agree."""
    native, held = ffi.new("struct rmq_queue_unit[]", len(units)), ffi.new("struct rmq_held_record[]", len(units))
    kept = []
    for number, unit in enumerate(units):
        host = b"\x0a\0\0\1" if dice is None or dice.random() < 0.5 else bytes(16)
        raw = bytearray(stored(born_host=host))
        at = 56 if len(host) == 4 else 68
        raw[at : at + 8] = unit.store_ms.to_bytes(8, "big", signed=True)
        kept.append(ffi.from_buffer(bytes(raw)))
        native[number].tags_code, native[number].size, held[number].at = unit.deliver_ms, len(raw), kept[-1]
    next_due = ffi.new("int64_t *")
    found = lib.rmq_due_units(native, held, len(units), now_ms, delay_ms, next_due)
    assert (found, next_due[0]) == due_units(units, now_ms, delay_ms)
    return int(found), int(next_due[0])


@pytest.mark.parametrize(
    ("deliver_ms", "store_ms", "now_ms", "delay_ms", "is_due"),
    [
        (T0 + 1000, T0, T0 + 999, 1000, False),
        (T0 + 1000, T0, T0 + 1000, 1000, True),
        (T0 + 1000, T0, T0 + HOUR_MS, 1000, True),  # the clock was set forward
        (T0 + 1000, T0, T0 - HOUR_MS, 1000, False),  # it was set back
        (T0 + HOUR_MS, T0, T0 + 1999, 2000, False),  # the delay was an hour, now it is two seconds
        (T0 + HOUR_MS, T0, T0 + 2000, 2000, True),
        (T0 + 1000, T0, T0 + 1000, HOUR_MS, True),  # the delay was a second, now it is an hour
    ],
)
def test_one_message(deliver_ms: int, store_ms: int, now_ms: int, delay_ms: int, is_due: bool) -> None:
    assert both([WaitingUnit(deliver_ms, store_ms)], now_ms, delay_ms)[0] == is_due


def test_random_units() -> None:
    dice, seen = random.Random(2), set()
    for _ in range(2000):
        delay_ms = dice.choice((1000, HOUR_MS))
        units = []
        for _ in range(dice.randrange(5)):
            store_ms = T0 + dice.randrange(-5000, 5000)
            units.append(WaitingUnit(store_ms + dice.choice((1000, 2000, HOUR_MS)), store_ms))
        seen.add(both(units, T0 + dice.choice((0, 3000, HOUR_MS, -HOUR_MS)), delay_ms, dice)[0])
    assert seen == {0, 1, 2, 3, 4}


def test_a_damaged_unit_counts_as_due() -> None:
    unit, held = ffi.new("struct rmq_queue_unit *"), ffi.new("struct rmq_held_record *")
    unit.tags_code, unit.size = 1 << 62, 20
    assert lib.rmq_due_units(unit, held, 1, T0, 1000, ffi.new("int64_t *")) == 1


def test_levels_in_turn() -> None:
    schedule = Schedule([Level(1000, slot) for slot in (5, 6, 7)])
    assert [schedule.due(T0), schedule.due(T0)] == [[1, 2, 0], [2, 0, 1]]
    for level in schedule.levels:
        level.look_ms = None
    assert (schedule.due(T0), schedule.sleep_ms(T0)) == ([], IDLE_MS)
    schedule.arrived({6, 99})
    assert schedule.due(T0) == [1]
    schedule.levels[1].look_ms = T0 + 30
    assert (schedule.due(T0), schedule.sleep_ms(T0)) == ([], 30)
    schedule.levels[1].look_ms = T0 + HOUR_MS
    schedule.arrived({6})
    assert schedule.sleep_ms(T0) == LOOK_MS
    schedule.clock_moved_back()
    assert schedule.due(T0 - HOUR_MS) == [1]


class Log(LogView):
    """A log of these bytes, from `min_offset` on."""

    def __init__(self, data: bytes, min_offset: int = 0) -> None:
        self._data, self._min_offset = data, min_offset

    def bounds(self) -> LogBounds:
        return LogBounds(self._min_offset, len(self._data), len(self._data))

    def crc(self, offset: int, length: int) -> int | None:
        if offset < self._min_offset or offset + length > len(self._data):
            return None
        return zlib.crc32(self._data[offset : offset + length]) & 0x7FFFFFFF

    def file(self, offset: int) -> tuple[int, bytes]:
        return 0, self._data


UNKNOWN = Progress(0, (0, 0, 0), has_checkpoint=False)


def test_progress_on_disk(tmp_path: Path) -> None:
    log = Log(bytes(range(200)))
    assert load_progress(tmp_path, 3, log, 100) == UNKNOWN
    save_progress(tmp_path, Progress(100, (7, 0, 9)), log, T0)
    assert load_progress(tmp_path, 3, log, 100) == Progress(100, (7, 0, 9))
    assert load_progress(tmp_path, 2, log, 200) == Progress(100, (7, 0, 9)), "level 3 may come back"
    assert load_progress(tmp_path, 3, log, 99) == UNKNOWN, "a power cut has taken copies"
    (tmp_path / "config" / "delayOffset.json").write_text(stock_text((8, 2, 1), DataVersion(1, 0, T0)))
    assert load_progress(tmp_path, 3, log, 100) == Progress(100, (8, 2, 9)), "a stock broker had the store"
    save_progress(tmp_path, Progress(100, (8, 2, 9)), log, T0)
    assert load_config(tmp_path, "delayOffset.json") == {
        "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": T0}, "offsetTable": {1: 8, 2: 2, 3: 9},
    }  # fmt: skip


def test_a_checkpoint_counts_for_its_own_log_alone(tmp_path: Path) -> None:
    log = Log(bytes(range(200)) * 50)
    for offset in (0, 1, 9000):
        save_progress(tmp_path, Progress(offset, (7, 0, 9)), log, T0)
        assert load_progress(tmp_path, 3, log, 10_000) == Progress(offset, (7, 0, 9))
    cut_and_grown = Log(bytes(range(200)) * 40 + bytes(2000))
    assert load_progress(tmp_path, 3, cut_and_grown, 10_000) == UNKNOWN
    assert load_progress(tmp_path, 3, Log(bytes(range(200)) * 50, 8999), 10_000) == UNKNOWN, "not to be verified"
    (tmp_path / "config" / "ringmqDelayOffset.json").write_text('{"logOffset":9000,"tail":[9001,0],"offsets":{}}')
    assert load_progress(tmp_path, 3, log, 10_000) == UNKNOWN


def test_impossible_entries_count_as_none_and_are_named(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    table = {"1": 7, "2": 1 << 70, "3": -1, "0": 5, "65": 5, "x": 5, "4": "y"}
    (tmp_path / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": table}))
    lines: list[str] = []
    assert stock_offsets(tmp_path, 3, lines.append) == [7, 0, 0]
    assert [line.split("'")[1] for line in lines] == ["2", "3", "0", "65", "x", "4"]
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable": [1]}')
    assert stock_offsets(tmp_path, 2, lines.append) == [0, 0] and "no object" in lines[-1]


@pytest.mark.parametrize(
    ("own", "stock", "expected", "named"),
    [
        ((7, 0, 9), (8, 0, 9), Progress(100, (8, 0, 9)), ""),
        ((7, 0, 9), (77, 0, 9), Progress(100, (7, 0, 9)), "the offset of level '1' is left out: offset 77 is beyond"),
        (None, (77, 5, 10), Progress(0, (0, 5, 0), has_checkpoint=False), "of its queue, 8"),
        ((7, 6, 9), (7, 5, 9), Progress(0, (7, 5, 9), has_checkpoint=False), "ringmqDelayOffset.json: the offset of"),
    ],
)
def test_an_offset_beyond_the_end_of_its_queue_tells_nothing(
    tmp_path: Path, own: tuple[int, ...] | None, stock: tuple[int, ...], expected: Progress, named: str
) -> None:
    """With an impossible checkpoint the marks of the whole log tell the progress."""
    (tmp_path / "config").mkdir()
    log, lines = Log(bytes(range(200))), []
    if own is not None:
        save_progress(tmp_path, Progress(100, own), log, T0)
    (tmp_path / "config" / "delayOffset.json").write_text(stock_text(stock, DataVersion(1, 0, T0)))
    assert load_progress(tmp_path, 3, log, 100, lines.append, (8, 5, 9)) == expected
    assert bool(lines) == bool(named) and named in "".join(lines)


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (tmp_path / "config" / name).write_text("{torn")
    log = Log(bytes(range(200)))
    with pytest.raises(ConfigFileError):
        load_progress(tmp_path, 3, log, 100)
    save_progress(tmp_path, Progress(100, (7, 0, 9)), log, T0)
    assert load_progress(tmp_path, 3, log, 100) == Progress(100, (7, 0, 9))


def test_marks_of_lost_levels_count() -> None:
    """The copies of a level behind the checkpoint, which a broker with fewer levels replaces."""
    role, data = lib.RMQ_ROLE_DELAY, b""
    for lane, source in ((0, 7), (3, 5), (3, 6)):
        data += stored(physical_offset=len(data), prepared=mark_of(role, lane, source))
    found = finish(following_marks(Log(data), role, Progress(0, (2, 9)), len(data), 1 << 20))
    assert found == Progress(len(data), (8, 9, 0, 7))


def test_the_text_is_stocks() -> None:
    text = stock_text((123, 0, 5), DataVersion(3, 0, T0))
    assert text == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"offsetTable":{1:123,3:5\n\t}\n}'
    )
