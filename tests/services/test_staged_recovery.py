"""Marks of published pieces: found in every log that recovery may meet, each as often as it is there."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.native import ffi, lib
from ringmq.remoting.staged_writes import COMMITS_TOPIC
from ringmq.services.staged.commit_records import CommitRecord, Piece, mark_of
from ringmq.services.staged.commits import StagedCommits
from ringmq.services.staged.events import Publish, Tick
from ringmq.services.staged.recovery import SCAN_STEP_BYTES, load_snapshot, replay, see_published
from ringmq.services.staged.staged_table import FILE
from tests.spark_bridge.made_store import Fields, record_bytes

FILE_BYTES = 4096
PIECES, MESSAGES = 3, 2


def encode(physical_offset: int, mark: int) -> bytes:
    """A record that carries a mark."""
    value = ffi.new("struct rmq_record_in *")
    kept = [ffi.from_buffer(b"body"), ffi.from_buffer(b"Topic")]
    value.body, value.topic = kept
    value.body_length, value.topic_length = 4, 5
    value.physical_offset, value.prepared_transaction_offset = physical_offset, mark
    size = lib.rmq_record_size(value)
    room = ffi.new("uint8_t[]", size)
    assert lib.rmq_record_encode(room, size, value) == size
    return bytes(ffi.buffer(room))


def published(start: int = 0, pieces: int = PIECES) -> bytes:
    """The records of the first pieces of commit 0."""
    made = b""
    for chunk in range(pieces):
        for _ in range(MESSAGES):
            made += encode(start + len(made), mark_of(0, chunk))
    return made


def left(files: dict[int, bytes], log_end: int, file_bytes: int = FILE_BYTES) -> list[tuple[int, int]]:
    """(chunk, messages to skip) of what is published after a look through the log."""

    def log_file(offset: int) -> tuple[int, bytes] | None:
        start = offset - offset % file_bytes
        return (start, files[start]) if start in files else None

    core = StagedCommits()
    core.replay(0, CommitRecord("q", 0, tuple(Piece(0, "T", queue, MESSAGES) for queue in range(PIECES))), 0, 1, 0)
    log = cast(Any, SimpleNamespace(file=log_file))
    for moved in see_published(log, core, 0, log_end, file_bytes):
        assert moved
    core.finish_recovery()
    effects = core.step(Tick(), 0, 1 << 60)
    return [(effect.chunk, effect.skip) for effect in effects if isinstance(effect, Publish)]


def blank(size: int) -> bytes:
    room = ffi.new("uint8_t[8]")
    assert lib.rmq_blank_encode(room, size) == 8
    return bytes(ffi.buffer(room)).ljust(size, b"\0")


def test_pieces_that_are_whole_in_part_and_missing() -> None:
    records = published()
    size = len(records) // (PIECES * MESSAGES)
    log = records.ljust(FILE_BYTES, b"\0")
    assert left({0: log}, len(records)) == []
    assert left({0: log}, len(records) - size) == [(2, 1)]
    assert left({0: log}, MESSAGES * size) == [(1, 0), (2, 0)]


def test_a_damaged_record_hides_nothing_behind_it() -> None:
    first = encode(0, 0)
    records = published(len(first))
    for damage in (b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"):
        log = (damage + first[4:] + records).ljust(FILE_BYTES, b"\0")
        assert left({0: log}, len(first) + len(records)) == []
    elsewhere = encode(64, 0)
    assert left({0: (elsewhere + records).ljust(FILE_BYTES, b"\0")}, len(first) + len(records)) == []


def test_a_file_that_retention_has_taken_hides_nothing_behind_it() -> None:
    records = published(FILE_BYTES)
    assert left({FILE_BYTES: records.ljust(FILE_BYTES, b"\0")}, FILE_BYTES + len(records)) == []


def test_a_blank_that_is_longer_than_a_step_hides_nothing_behind_it() -> None:
    file_bytes = SCAN_STEP_BYTES + FILE_BYTES
    first, records = encode(0, 0), published(file_bytes)
    files = {0: first + blank(file_bytes - len(first)), file_bytes: records.ljust(FILE_BYTES, b"\0")}
    assert left(files, file_bytes + len(records), file_bytes) == []


END = 1000
RECORD = [500, 40, 7]


def loaded(root: Path, crc: int | None = 7, min_offset: int = 0, **changed: Any) -> tuple[int, str, list[str]]:
    """(first record to replay, what is told, queries that are believed) of a table, where the log has `crc`."""
    value = {"replayFrom": 4, "record": RECORD, "queries": [["old", 1, 100], ["new", 2, 540]], **changed}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / FILE).write_text(json.dumps({name: part for name, part in value.items() if part is not None}))
    log = SimpleNamespace(
        bounds=lambda: SimpleNamespace(min_offset=min_offset),
        crc=lambda offset, size: crc if [offset, size] == RECORD[:2] else None,
    )
    core = StagedCommits()
    first, told = load_snapshot(root, core, cast(Any, log), END)
    assert core.dirty == (first == 0)
    return first, told or "", [entry[0] for entry in core.snapshot()[0]["queries"]]


def test_a_table_is_believed_where_the_log_has_its_newest_record(tmp_path: Path) -> None:
    assert loaded(tmp_path) == (4, "", ["old", "new"])
    assert loaded(tmp_path, crc=None, min_offset=501) == (4, "", ["old", "new"]), "retention has taken it"


@pytest.mark.parametrize("record", [RECORD, [500, 501, 7], [990, 40, 7], None])
def test_a_table_of_another_history_is_built_again(tmp_path: Path, record: list[int] | None) -> None:
    first, told, queries = loaded(tmp_path, crc=8, min_offset=100, record=record)
    assert (first, queries) == (0, ["old"]), "what the log has no more stays"
    assert ("built again" in told) == (record is not None)


@pytest.mark.parametrize("record", [7, [1, 2], ["x", 2, 3], {}])
def test_a_table_with_a_malformed_record_is_built_again(tmp_path: Path, record: Any) -> None:
    assert "cannot be used" in loaded(tmp_path, record=record)[1]


def test_units_that_retention_takes_meanwhile_hide_no_decision_behind_them(tmp_path: Path) -> None:
    """The queue's first file goes between the look at its bounds and the reading: only units behind it are there."""
    taken, numbers = 1, range(4)
    records: dict[int, bytes] = {}
    units: dict[int, tuple[int, int]] = {}
    for number in numbers:
        body = CommitRecord(f"q{number}", 0, ()).encode()
        raw = record_bytes(Fields(topic=COMMITS_TOPIC, body=body), number, 1000 * number)
        records[1000 * number], units[number] = raw, (1000 * number, len(raw))
    log = SimpleNamespace(
        units=lambda _, __, first, count: [units[at] for at in range(max(first, taken), first + count)],
        record=lambda offset: memoryview(records[offset]),
    )
    topics = SimpleNamespace(queue_bounds=lambda _, __: (0, len(numbers)))
    core = StagedCommits()
    assert all(replay(cast(Any, log), cast(Any, topics), core, 0))
    assert [entry[0] for entry in core.snapshot()[0]["queries"]] == ["q1", "q2", "q3"]


def test_a_step_replays_one_record_because_a_large_one_takes_ten_milliseconds() -> None:
    raw = record_bytes(Fields(topic=COMMITS_TOPIC, body=CommitRecord("q", 0, ()).encode()), 0, 0)
    looks = list[int]()

    def record(offset: int) -> memoryview:
        looks.append(offset)
        return memoryview(raw)

    log = SimpleNamespace(units=lambda _, __, first, count: [(0, len(raw))] * count, record=record)
    topics = SimpleNamespace(queue_bounds=lambda _, __: (0, 100))
    for _ in replay(cast(Any, log), cast(Any, topics), StagedCommits(), 0):
        assert len(looks) <= 1
        looks.clear()
