"""Checkpoints of services: their bytes on disk, which earlier versions read, and the log that they are true of."""

import zlib
from pathlib import Path

import pytest

from ringmq.services.delay.progress import Progress, save_progress
from ringmq.services.kit.checkpoint import TAIL_BYTES, History, compare, history_of, place_in_log
from ringmq.services.log_view import LogBounds, LogView
from ringmq.services.staged.recovery import save_snapshot
from ringmq.timer import progress as timers
from ringmq.timer.core import Progress as TimerProgress

BYTES, MIN_OFFSET, NOW_MS = bytes(range(256)) * 40, 100, 1_800_000_000_000
DELAY = '{"logOffset":9000,"tail":[4096,2998632898],"offsets":{"1":7,"3":9},"crc32":23530267}'
TIMER = (
    '{"openMs":1800000000000,"queueOffset":70,"known":[60,1799999995000],"marksFrom":4096,"precisionMs":1000,'
    '"coarsestMs":1000,"knownCoarsestMs":1000,"windowSlots":40,"needsRebuild":false,"isRebuilding":false,"waits":true,'
    '"waitsFrom":52,"logOffset":9000,"tail":[4096,2998632898],"timercheck":[1800000000000,520,70,70,0,1800000000000,1],'
    '"crc32":1375528460}'
)
STAGED = '{"version":1,"replayFrom":4,"queries":[["q",2,540,0,7]],"record":[500,40,4242835898],"crc32":1342694544}'
TIMERCHECK_CRC = 921282140


class Log(LogView):
    """A log of these bytes. Retention has taken those before MIN_OFFSET."""

    def __init__(self, data: bytes = BYTES) -> None:
        self._data = data

    def bounds(self) -> LogBounds:
        return LogBounds(MIN_OFFSET, len(self._data), len(self._data))

    def crc(self, offset: int, length: int) -> int | None:
        is_there = offset >= MIN_OFFSET and offset + length <= len(self._data)
        return zlib.crc32(self._data[offset : offset + length]) if is_there else None


def test_the_bytes_of_each_file_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """Recorded from the version that wrote them with code of each service's own."""
    (tmp_path / "config").mkdir()
    save_progress(tmp_path, Progress(9000, (7, 0, 9)), Log(), NOW_MS)
    timer = TimerProgress(NOW_MS, 70, 4096, 60, NOW_MS - 5000, 1000)
    snapshot = timers.Snapshot(timer, 9000, 520, waits_from=52, coarsest_ms=1000, window_slots=40)
    timers.save(tmp_path, snapshot, 1000, Log(), NOW_MS)
    staged = {"version": 1, "replayFrom": 4, "queries": [["q", 2, 540, 0, 7]], "record": [500, 40]}
    save_snapshot(tmp_path, Log(), staged)()
    found = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
    assert found.keys() == {
        "delayOffset.json", "ringmqDelayOffset.json", "ringmqTimer.json", "timercheck", "ringmqStagedWrites.json",
    }  # fmt: skip
    assert found["ringmqDelayOffset.json"].decode() == DELAY
    assert found["ringmqTimer.json"].decode() == TIMER
    assert found["ringmqStagedWrites.json"].decode() == STAGED
    assert (len(found["timercheck"]), zlib.crc32(found["timercheck"])) == (4096, TIMERCHECK_CRC)


@pytest.mark.parametrize(
    ("log_offset", "tail"),
    [(9000, [TAIL_BYTES, 2998632898]), (150, [50, 3638921469]), (MIN_OFFSET, [0, 0]), (0, [0, 0]), (99_999, [0, 0])],
)
def test_the_place_in_the_log_covers_no_more_than_the_log_has(log_offset: int, tail: list[int]) -> None:
    assert place_in_log(Log(), log_offset) == {"logOffset": log_offset, "tail": tail}


def test_the_history_of_a_checkpoint() -> None:
    place, end = place_in_log(Log(), 9000), len(BYTES)
    other = Log(BYTES[:8999] + b"x" + BYTES[9000:])
    assert history_of(place, Log(), end) == (9000, History.SAME)
    assert history_of(place, Log(), 9000) == (9000, History.SAME)
    assert history_of(place, Log(), 8999) == (9000, History.OTHER), "the log ends before it"
    assert history_of(place, other, end) == (9000, History.OTHER), "the log has grown again"
    assert history_of(place | {"logOffset": TAIL_BYTES}, Log(), end) == (TAIL_BYTES, History.DELETED)
    assert history_of({"logOffset": 9000, "tail": [0, 0]}, other, end) == (9000, History.SAME)
    assert history_of({"logOffset": 9000, "tail": [0, 0]}, other, 8999) == (9000, History.OTHER)
    assert compare(Log(), end, MIN_OFFSET - 1, 5, 0) is History.DELETED


@pytest.mark.parametrize(
    "entries",
    [{}, {"logOffset": 5}, {"logOffset": 5, "tail": [6, 1]}, {"logOffset": 5, "tail": [-1, 1]},
     {"logOffset": "5", "tail": [1, 1]}, {"logOffset": 5, "tail": [1]}, {"logOffset": 5, "tail": ["1", 1]}],
)  # fmt: skip
def test_impossible_entries_name_no_place(entries: dict[str, object]) -> None:
    assert history_of(entries, Log(), len(BYTES)) is None
