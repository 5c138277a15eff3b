"""Whether a start finds commits that are not complete: the worker must start then, and should not otherwise."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringmq.remoting.staged_writes import COMMITS_TOPIC
from ringmq.services.staged.commit_records import CommitRecord, DoneRecord, Piece
from ringmq.services.staged.open_commits import RECORD_BYTES_MAX, RECORDS_MAX, has_open_commits
from ringmq.services.staged.staged_table import FILE
from tests.spark_bridge.made_store import Fields, record_bytes

COMMIT = CommitRecord("q", 0, ())
RECORD = [500, 40, 7]
STEP = 1000


@dataclass
class Store:
    """A log whose commit records stand STEP bytes apart."""

    bodies: list[bytes] = field(default_factory=list)
    first: int = 0
    crc_at_record: int | None = 7
    undispatched: int = 0
    is_known: bool = True
    looks: int = 0

    def holds_open(self, root: Path) -> bool:
        end = STEP * (len(self.bodies) + 1)
        marks = SimpleNamespace(append_offset=end, dispatched_offset=end - self.undispatched, min_offset=0)
        raw = {
            STEP * number: record_bytes(Fields(topic=COMMITS_TOPIC, body=body), number, STEP * number)
            for number, body in enumerate(self.bodies)
            if number >= self.first
        }
        topics = SimpleNamespace(
            queue_bounds=lambda *_: (self.first, len(self.bodies)),
            find=lambda name: name if self.is_known else None,
        )
        log = SimpleNamespace(
            units=lambda _, __, first, count: [
                (STEP * number, len(raw[STEP * number])) for number in range(first, first + count)
            ],
            record=lambda offset: self.look(raw[offset]),
            crc=lambda offset, size: self.crc_at_record,
        )
        plane = SimpleNamespace(watermarks=marks)
        return has_open_commits(root, cast(Any, plane), cast(Any, log), cast(Any, topics))

    def look(self, raw: bytes) -> memoryview:
        self.looks += 1
        return memoryview(raw)


def snapshot(root: Path, replay_from: int, **more: Any) -> None:
    (root / "config").mkdir(exist_ok=True)
    value = {"version": 1, "replayFrom": replay_from, "record": RECORD, "queries": [], **more}
    (root / "config" / FILE).write_text(json.dumps(value))


def bodies(*records: CommitRecord | DoneRecord) -> list[bytes]:
    return [record.encode() for record in records]


def test_a_decision_without_its_done_record_is_open(tmp_path: Path) -> None:
    assert Store(bodies(COMMIT)).holds_open(tmp_path)
    assert not Store(bodies(COMMIT, DoneRecord(0))).holds_open(tmp_path)
    assert Store(bodies(COMMIT, COMMIT, DoneRecord(0))).holds_open(tmp_path)
    assert not Store(bodies(COMMIT, COMMIT, DoneRecord(1), DoneRecord(0))).holds_open(tmp_path)


def test_only_what_is_behind_the_snapshot_is_read(tmp_path: Path) -> None:
    store = Store([*bodies(COMMIT, DoneRecord(0)) * 50, *bodies(COMMIT)])
    snapshot(tmp_path, 101)
    assert not store.holds_open(tmp_path) and store.looks == 0
    snapshot(tmp_path, 100)
    assert store.holds_open(tmp_path) and store.looks == 1


def test_a_store_that_never_had_staged_writes_is_not_read(tmp_path: Path) -> None:
    assert not Store(bodies(COMMIT), is_known=False, undispatched=1).holds_open(tmp_path)


def test_a_broken_body_or_what_retention_has_taken_is_no_commit(tmp_path: Path) -> None:
    assert not Store([b"not a record"]).holds_open(tmp_path)
    assert not Store(bodies(COMMIT, COMMIT, DoneRecord(1)), first=1).holds_open(tmp_path)


@pytest.mark.parametrize("replay_from", [3, 1 << 40])
def test_a_log_that_was_lost_behind_the_snapshot_is_looked_at_by_the_worker(tmp_path: Path, replay_from: int) -> None:
    snapshot(tmp_path, replay_from)
    assert Store(bodies(COMMIT, DoneRecord(0))).holds_open(tmp_path)


def test_what_cannot_be_known_cheaply_starts_the_worker(tmp_path: Path) -> None:
    complete = bodies(COMMIT, DoneRecord(0))
    assert Store(complete, undispatched=1).holds_open(tmp_path), "the queue does not have all records yet"
    assert Store(complete * RECORDS_MAX).holds_open(tmp_path)
    snapshot(tmp_path, 2)
    assert not Store(complete).holds_open(tmp_path)
    assert Store(complete, crc_at_record=8).holds_open(tmp_path), "the snapshot is of another log"
    (tmp_path / "config" / FILE).write_text("{broken")
    assert Store(complete).holds_open(tmp_path)


def test_large_decisions_are_left_to_the_worker(tmp_path: Path) -> None:
    large = CommitRecord("q", 0, tuple(Piece(number, "T", 0, 1) for number in range(16_384)))
    few = RECORD_BYTES_MAX // len(large.encode())
    store = Store(bodies(*(large, DoneRecord(0)) * (few + 2)))
    assert store.holds_open(tmp_path) and store.looks == 0
