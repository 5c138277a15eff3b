"""The timer files of stock RocketMQ, as recorded, are read and written again byte for byte."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.broker.requests.turns import finish
from ringmq.remoting.subscription import java_string_hash
from ringmq.store.inferred_config import config_without_index
from ringmq.store.layout import HALF_TOPIC
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.timer import timer_log
from ringmq.timer.progress import Saved
from ringmq.timer.recovery import open_files
from ringmq.timer.survey import TimerState, names_its_record, read_from_ms, survey, waiting_units
from ringmq.timer.timer_checkpoint import TimerCheckpoint, read_timer_checkpoint
from ringmq.timer.timer_log import NO_UNIT, Magic, TimerLog, TimerUnit, blank
from ringmq.timer.timer_wheel import FILE_BYTES, SLOT, SLOTS, TimerWheel
from ringmq.timer.waiting import WaitingTopic, waiting_topics
from tests.archives import unpack
from tests.suite.samples import Sampled

GOLDEN = Path(__file__).parents[1] / "golden" / "timer"
DECODED: dict[str, Any] = json.loads((GOLDEN / "decoded.json").read_text())
SNAPSHOTS = tuple(DECODED)
LOG_FILE_BYTES = 10_240
"""`mappedFileSizeTimerLog` of the recorded broker."""
NOT_IN_WHEEL = {"clean-stop-pending": 3}
"""Units that a clean stop of stock has left out of its wheel."""
POSITION, PREVIOUS, MAGIC, ENQUEUE, DELAY, OFFSET, SIZE, HASH, RESERVED = range(9)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each snapshot's store in a folder of its name."""
    target = tmp_path_factory.mktemp("golden-timer")
    for name in SNAPSHOTS:
        unpack(GOLDEN / f"store-{name}.tar.xz", target / name)
    return target


def units_of(name: str) -> list[list[int]]:
    """Those of an earlier snapshot are the first of the last one's."""
    last = max(row[3] for row in DECODED[name]["slots"]) + NOT_IN_WHEEL.get(name, 0) * timer_log.UNIT_BYTES
    return [row for row in DECODED["after-restart"]["units"] if row[POSITION] <= last]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_units_of_stock_are_read_and_written(stores: Path, name: str) -> None:
    log = TimerLog(stores / name, LOG_FILE_BYTES)
    found = list(log.units(0))
    wanted = units_of(name)
    assert len(found) == len(wanted) >= 488
    for unit, row in zip(found, wanted, strict=True):
        assert unit == TimerUnit(row[0], row[1], Magic(row[2]), *row[3:8])
        data = log.files.read(unit.position, timer_log.UNIT_BYTES)
        assert data is not None and unit.encode() == bytes(data)
    for entry in DECODED[name]["blanks"]:
        data = log.files.read(entry["pos"], timer_log.BLANK.size)
        assert data is not None and bytes(data) == blank(entry["blank"])


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_slots_of_stock_are_read(stores: Path, name: str) -> None:
    wheel = TimerWheel(stores / name)
    rows = [row for row in DECODED[name]["slots"] if row[1]]
    assert rows
    for index, time, first, last, count, magic in rows:
        slot = wheel.slot(time * 1000 + 999)
        assert (time % SLOTS, slot.time_ms, slot.first, slot.last, slot.count, magic) == (
            index, time * 1000, first, last, count, 0,
        )  # fmt: skip
        assert wheel.slot(time * 1000 + SLOTS * 1000).is_empty
    assert [slot.time_ms // 1000 for slot in wheel.slots(0)] == sorted(row[1] for row in rows if row[3] != NO_UNIT)
    wheel.close()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_checkpoint_of_stock_is_read_and_written(stores: Path, name: str) -> None:
    found = read_timer_checkpoint(stores / name)
    assert found is not None
    assert found == TimerCheckpoint(*DECODED[name]["timercheck"].values())
    assert found.encode_file() == (stores / name / "config" / "timercheck").read_bytes()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_slot_leads_back_to_its_first_unit(stores: Path, name: str) -> None:
    log, wheel = TimerLog(stores / name, LOG_FILE_BYTES), TimerWheel(stores / name)
    slots = wheel.slots(0)
    assert slots
    for slot in slots:
        chain = list(log.chain(slot.last))
        assert chain[-1].position == slot.first
        assert {unit.slot_ms for unit in chain} == {slot.time_ms}
    wheel.close()


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_sound_files_of_stock_are_not_rebuilt(stores: Path, tmp_path: Path, name: str) -> None:
    """A clean stop of stock leaves units out of its wheel."""
    root, lines = shutil.copytree(stores / name, tmp_path / name), list[str]()
    known = read_timer_checkpoint(root)
    assert known is not None
    saved = Saved(known.last_read_ms, known.queue_offset, flushed_position=known.flushed_position)
    opening = open_files(
        root,
        saved,
        precision_ms=1000,
        window_slots=20,
        file_bytes=LOG_FILE_BYTES,
        log_line=lines.append,
        oldest_record=0,
    )
    with closing(finish(opening)) as files:
        assert not files.is_rebuilt and not any("rebuilt" in line for line in lines)
        assert files.log_end == units_of(name)[-1][POSITION] + timer_log.UNIT_BYTES


# --- what waits ----------------------------------------------------------------------------------------------

MESSAGES: dict[str, Any] = json.loads((GOLDEN / "messages.json").read_text())


def at_ms(name: str) -> int:
    return int(MESSAGES["snapshots"][name]["atMs"])


def state_of(root: Path, name: str) -> TimerState:
    return survey(
        root, at_ms(name), names_its_record(MessageStore(config_without_index(root))), file_bytes=LOG_FILE_BYTES
    )


def units_in(root: Path, name: str) -> list[TimerUnit]:
    log = TimerLog(root, LOG_FILE_BYTES)
    return [unit for slot in state_of(root, name).slots for unit in waiting_units(log, slot)]


def waiting_offsets(root: Path, name: str) -> list[int]:
    """Log offsets of the records that wait to be delivered or rolled."""
    return sorted(unit.commit_log_offset for unit in units_in(root, name) if Magic.DELETE not in unit.magic)


def sent_and_waiting(name: str) -> list[int]:
    """The same by the recorded units: those of slots from the recorded time of reading on."""
    rows = [row for row in DECODED["after-restart"]["units"] if Magic.DELETE not in Magic(row[MAGIC])]
    newest = max(row[OFFSET] for row in units_of(name))
    due_ms = DECODED[name]["timercheck"]["lastReadTimeMs"]
    return sorted(row[OFFSET] for row in rows if row[OFFSET] <= newest and row[ENQUEUE] + row[DELAY] >= due_ms)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_waits_is_what_was_sent(stores: Path, name: str) -> None:
    found = waiting_offsets(stores / name, name)
    assert found == sent_and_waiting(name)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_topics_are_counted_as_the_chains_of_slots_hold_them(stores: Path, name: str) -> None:
    state, units = state_of(stores / name, name), units_in(stores / name, name)
    rows = waiting_topics(TimerLog(stores / name, LOG_FILE_BYTES), state, ["GT"])
    found = {row.topic: row for row in rows}["GT"]
    of_topic = [unit for unit in units if unit.topic_hash == java_string_hash("GT")]
    messages = [unit for unit in of_topic if Magic.DELETE not in unit.magic]
    assert found == WaitingTopic(
        "GT", len(messages), sum(1 for unit in messages if Magic.ROLL in unit.magic), len(of_topic) - len(messages),
        min(unit.slot_ms for unit in of_topic), max(unit.slot_ms for unit in of_topic),
    )  # fmt: skip
    assert sum(row.messages + row.deletes for row in rows) == len(units) > 0
    assert [row.topic for row in rows if row.topic.startswith("hash ")] == (
        [f"hash {java_string_hash(HALF_TOPIC)}"] if name == "pending-running" else []
    )


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_log_alone_tells_what_waits(stores: Path, tmp_path: Path, name: str) -> None:
    root = shutil.copytree(stores / name, tmp_path / name)
    (root / "timerwheel").unlink()
    known = read_timer_checkpoint(root)
    assert known is not None
    (root / "config" / "timercheck").write_bytes(replace(known, flushed_position=0).encode_file())
    assert waiting_offsets(root, name) == sent_and_waiting(name)


IMPOSSIBLE_TIMES = [TimerCheckpoint(time_ms, 0, 1 << 40).encode_file() for time_ms in (-1, -(1 << 62), 1 << 48)]


@pytest.mark.parametrize("content_of_file", [None, b"", bytes(4096), *IMPOSSIBLE_TIMES])
def test_without_a_checkpoint_everything_of_the_last_days_waits(
    stores: Path, tmp_path: Path, content_of_file: bytes | None
) -> None:
    root = shutil.copytree(stores / "after-restart", tmp_path / "store")
    path = root / "config" / "timercheck"
    path.unlink() if content_of_file is None else path.write_bytes(content_of_file)
    rows = [row for row in DECODED["after-restart"]["units"] if Magic.DELETE not in Magic(row[MAGIC])]
    assert waiting_offsets(root, "after-restart") == sorted(row[OFFSET] for row in rows)


@pytest.mark.parametrize("content_of_file", IMPOSSIBLE_TIMES)
def test_a_checkpoint_of_an_impossible_time_counts_as_none(tmp_path: Path, content_of_file: bytes) -> None:
    """A negative time would lead outside of the wheel in memory."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(content_of_file)
    assert read_timer_checkpoint(tmp_path) is None


def test_a_log_cut_at_any_byte_of_its_last_unit_ends_before_it(stores: Path, tmp_path: Path, sampled: Sampled) -> None:
    name = "pending-running"
    root = shutil.copytree(stores / name, tmp_path / "cut")
    end = state_of(root, name).log_end
    path = root / "timerlog" / f"{end - end % LOG_FILE_BYTES:020d}"
    whole = path.read_bytes()
    stop = end % LOG_FILE_BYTES
    assert stop > timer_log.UNIT_BYTES
    for lost in sampled(range(1, timer_log.UNIT_BYTES + 1), 12):
        path.write_bytes(whole[: stop - lost] + bytes(len(whole) - stop + lost))
        is_whole = not any(whole[stop - lost : stop])
        assert state_of(root, name).log_end == (end if is_whole else end - timer_log.UNIT_BYTES), lost


def test_the_time_of_reading_lies_at_most_half_a_round_back() -> None:
    now_ms = 1_800_000_000_000
    assert read_from_ms(TimerCheckpoint(last_read_ms=now_ms - 5_500), now_ms, 1000) == now_ms - 6_000
    assert read_from_ms(TimerCheckpoint(), now_ms, 1000) == now_ms - 604_800_000 + 60_000


def test_files_of_another_size_are_named(stores: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreLoadError, match=r"timerlog/0+ has 10240 bytes, not 20480 as configured"):
        TimerLog(stores / "pending-running", 20_480)
    with pytest.raises(StoreLoadError, match="mappedFileSizeTimerLog is 67"):
        TimerLog(tmp_path, 67)
    (tmp_path / "timerwheel").write_bytes(bytes(SLOT.size))
    with pytest.raises(StoreLoadError, match=f"timerwheel has 32 bytes, not {FILE_BYTES}"):
        TimerWheel(tmp_path)


def test_a_chain_that_does_not_lead_backward_is_named(stores: Path, tmp_path: Path) -> None:
    root = shutil.copytree(stores / "pending-running", tmp_path / "store")
    log = TimerLog(root, LOG_FILE_BYTES)
    unit = log.unit(156)
    assert unit is not None and unit.previous == 104
    path = root / "timerlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[156:208] = replace(unit, previous=156).encode()
    path.write_bytes(data)
    with pytest.raises(StoreLoadError, match="position 156: a slot of the timer wheel names no unit there"):
        list(TimerLog(root, LOG_FILE_BYTES).chain(156))
