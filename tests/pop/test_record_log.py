"""Consumer offsets that a way out of the store commits, beside the passes over all offsets."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.native import lib
from ringmq.pop import record_log
from ringmq.pop.check_points import HandOverError
from ringmq.pop.offsets import PASS_MS
from ringmq.pop.record_log import RecordLog
from tests.pop.test_table_changes import Worker


def test_a_pass_that_has_begun_before_leaves_the_committed_offsets_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the offset of before until control has stored the report: it is no client's."""
    monkeypatch.setattr(record_log, "COMMITS", 8)
    worker = Worker(tmp_path)
    worker.topic("T")
    worker.group("G")
    worker.send("T", 10)
    held = worker.taken(4)
    worker.commit(4)
    worker.settle()
    unused: Any = None
    log = RecordLog(
        plane=unused, port=unused, windows=worker.windows, control=unused, config=unused, log=unused,
        offsets=worker.offsets,
    )  # fmt: skip
    [(key, window)] = worker.desk.windows.all()

    def committed() -> int:
        return int(lib.rmq_pop_window_at(worker.windows, window.place).committed)

    def rows() -> Iterator[tuple[int, int, int]]:
        lib.rmq_pop_set_committed(worker.windows, window.place, 0, int(worker.kit.marks.start_id))
        yield window.group_id, window.queue_slot, 0

    assert committed() == worker.table() == 4
    worker.offsets._begin()
    steps = log.commit(rows())
    assert next(steps) == f"{record_log.COMMITS_WAIT}: 1 are reported, 1 are left"
    worker.offsets.turn(worker.now_ms + PASS_MS)
    assert committed() == 0
    worker.drain()
    assert list(steps) == []
    worker.settle()
    assert worker.table() == 0 and list(worker.desk.windows.all()) == [(key, window)], "it has not begun anew"
    assert worker.ack(held[0]).code == 0
    worker.settle()
    assert worker.table() == 1


def test_a_wait_that_is_given_up_leaves_no_record_with_write() -> None:
    """Copies take the port next, and would take its answers for their own."""
    unused: Any = None
    log = RecordLog(
        plane=unused, port=unused, windows=unused, control=unused, config=unused, log=unused, offsets=unused
    )
    left = iter([2, 1, 0])
    points: Any = SimpleNamespace(refused=0, take_answers=lambda: next(left))
    steps = log.settle(points, lambda: "records", in_flight=1)
    assert next(steps) == "records"
    assert steps.throw(HandOverError("given up")) == "records"
    with pytest.raises(HandOverError, match="given up"):
        next(steps)


def test_a_flush_and_a_control_that_go_on_are_no_wait_in_vain() -> None:
    """A drain gives up a wait whose text stays as it is."""
    unused: Any = None
    marks = SimpleNamespace(flushed_offset=0)
    plane: Any = SimpleNamespace(watermarks=marks)
    room = iter([True, False, False, True, False, True])
    offsets: Any = SimpleNamespace(has_room=lambda count: next(room), publish=lambda rows: None, unstored=40)
    log = RecordLog(
        plane=plane, port=unused, windows=unused, control=unused, config=unused, log=unused, offsets=offsets
    )
    syncing, texts = log.sync(0, 1 << 20), list[str]()
    next(syncing)
    for flushed in (0, 0, 1000, 2000):
        marks.flushed_offset = flushed
        texts.append(next(syncing))
    assert texts[0] == texts[1] and len(set(texts)) == 3
    committing, texts = log.commit((0, 0, offset) for offset in range(2 * record_log.COMMITS)), list[str]()
    for unstored in (40, 30, 30, 20, 20, 10):  # three waits for room, then those for the last reports
        offsets.unstored = unstored
        texts.append(next(committing))
    assert len(set(texts[:3])) == 3 and texts[3] == texts[4] != texts[5]
    offsets.unstored = 0
    assert list(committing) == []
