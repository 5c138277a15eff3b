"""Each bit of the files that tell a start of the worker `timer` where it was, flipped: none moves it on."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import astuple

from ringmq.broker.replication.copied_files import FileState
from ringmq.ha.slave_sync import decode_file
from ringmq.remoting.errors import RemotingError
from ringmq.services.log_view import LogBounds, LogView
from ringmq.store.config_files import ConfigFileError
from ringmq.store.layout import TIMER_COUNTS_FILE
from ringmq.timer.core import Progress
from ringmq.timer.doctor import messages_waiting
from ringmq.timer.guest import GUEST
from ringmq.timer.master_timers import FILE as MASTER_FILE
from ringmq.timer.master_timers import MasterTimers, read_master_timers, write_master_timers
from ringmq.timer.metrics import NumbersFile
from ringmq.timer.metrics import _waiting as waiting_of
from ringmq.timer.progress import Saved, Snapshot, load_saved, read_rest, save
from ringmq.timer.timer_checkpoint import (
    FILE,
    PROGRESS_FILE,
    WRITTEN,
    Filing,
    TimerCheckpoint,
    checkpoint_for_slaves,
    contradiction,
    read_timer_checkpoint,
)
from ringmq.timer.topic_counts import TopicCountsFile

(COUNTS,) = GUEST.copied_files
OPEN_MS, LOG_END = 1_800_000_000_000, 9000
PROGRESS = Progress(OPEN_MS, 70, 4096, 60, OPEN_MS - 5000, 1000)
SNAPSHOT = Snapshot(PROGRESS, 5000, 520, waits_from=52, coarsest_ms=1000, window_slots=40)


class Log(LogView):
    def __init__(self) -> None:
        pass

    def bounds(self) -> LogBounds:
        return LogBounds(100, LOG_END, LOG_END)

    def crc(self, offset: int, length: int) -> int | None:
        return offset + length


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    save(tmp_path, SNAPSHOT, 1000, Log(), OPEN_MS)
    return tmp_path


def flips(path: Path) -> Iterator[int]:
    """Flip each bit that is no 0 of the file's end, one at a time."""
    sound = path.read_bytes()
    for bit in range(8 * len(sound.rstrip(b"\x00"))):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        yield bit
    path.write_bytes(sound)


def loaded(root: Path, lines: list[str]) -> Saved:
    return load_saved(root, Log(), LOG_END, lines.append)


def test_a_bit_of_timercheck_moves_nothing(root: Path) -> None:
    """It has no checksum, but the worker's own file has its fields, too."""
    sound, slaves, told = loaded(root, []), checkpoint_for_slaves(root), 0
    assert sound.open_ms == OPEN_MS and sound.flushed_position == 520 and sound.queue_offset == 70
    assert slaves is not None and slaves.filing == Filing(40, 1000, 1000, 1000)
    for bit in flips(root / "config" / FILE):
        lines: list[str] = []
        assert loaded(root, lines) == sound and checkpoint_for_slaves(root) == slaves, bit
        assert all("those of ringmqTimer.json count" in line for line in lines)
        told += bool(lines)
    assert told > 50, "bits that claim more"
    (root / "config" / FILE).unlink()
    assert loaded(root, []) == sound


def test_a_stock_broker_that_went_on_is_believed(root: Path) -> None:
    stock = TimerCheckpoint(OPEN_MS + 60_000, 1040, 90, 90, 0, OPEN_MS + 61_000, 7)
    (root / "config" / FILE).write_bytes(stock.encode_file())
    lines: list[str] = []
    found = loaded(root, lines)
    assert (found.open_ms, found.queue_offset, found.flushed_position) == (OPEN_MS + 60_000, 90, 1040) and not lines


def test_a_timercheck_that_a_death_has_left_older_is_no_damage(root: Path) -> None:
    older = (root / "config" / FILE).read_bytes()
    later = Snapshot(Progress(OPEN_MS + 9000, 80, 4096, 70, OPEN_MS, 1000), 6000, 624)
    save(root, later, 1000, Log(), OPEN_MS + 9000)
    expected = loaded(root, [])
    (root / "config" / FILE).write_bytes(older)
    lines: list[str] = []
    found = loaded(root, lines)
    assert (found.open_ms, found.queue_offset) == (expected.open_ms, expected.queue_offset) and not lines


def test_a_bit_of_the_counts_by_topic_stops_no_reader_and_is_written_again(root: Path) -> None:
    """They are for people: metrics, doctor and slaves. No delivery depends on them, so the file has no checksum."""
    record = SimpleNamespace(properties={"REAL_TOPIC": "Orders"})
    rows = np.array([(7, 100, 0, 12)], [(name, "i8") for name in ("hash", "record_bytes", "log_offset", "messages")])

    def write() -> None:
        file = TopicCountsFile(root, lambda *_: record, lambda: OPEN_MS)  # type: ignore[arg-type, return-value]
        file._write_totals = lambda _: None  # type: ignore[method-assign]
        file.write(rows, 0)

    write()
    path, noticed, others = root / "config" / TIMER_COUNTS_FILE, 0, 0
    sound = path.read_bytes()
    for bit in flips(path):
        numbers = NumbersFile(path, waiting_of).read()
        assert messages_waiting(root) >= 0 and all(count >= 0 for count in numbers.values()), bit
        try:
            text = FileState(COUNTS, path=path).read()
            others += numbers != {"Orders": 12} and decode_file(COUNTS, (text or "").encode()).text == text
        except RemotingError:
            noticed += 1  # the slave logs it, and keeps what it has
    assert noticed > 400 and others > 10
    path.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    write()
    assert path.read_bytes() == sound, "each start of the worker writes the file"


def test_a_bit_of_the_own_progress_is_told_or_changes_nothing(root: Path) -> None:
    """Then the marks of the whole log count."""
    (root / "config" / f"{PROGRESS_FILE}.bak").unlink(missing_ok=True)
    sound, rest, refused = loaded(root, []), read_rest(root), 0
    for bit in flips(root / "config" / PROGRESS_FILE):
        try:
            assert loaded(root, []) == sound and read_rest(root) == rest, bit
        except ConfigFileError:
            refused += 1
    assert refused > 1000


def test_a_bit_of_the_masters_progress_makes_it_count_as_none(tmp_path: Path) -> None:
    timers = MasterTimers(OPEN_MS, 70, 5000, 4096, (0, OPEN_MS, 7), Filing(40, 1000, 1000, 500))
    write_master_timers(tmp_path, timers)
    for bit in flips(tmp_path / "config" / MASTER_FILE):
        assert read_master_timers(tmp_path) in (None, timers), bit


def test_doctor_tells_of_a_timercheck_that_claims_more(root: Path) -> None:
    stock = read_timer_checkpoint(root)
    assert stock is not None
    written = {WRITTEN: [OPEN_MS - 1, *astuple(stock)[1:]]}
    assert contradiction(stock, written) == (
        f"its times and positions are {OPEN_MS}, 520, 70, 70 instead of {OPEN_MS - 1}, 520, 70, 70, which "
        f"{PROGRESS_FILE} has"
    )
    assert not contradiction(stock, {}) and not contradiction(None, written)
