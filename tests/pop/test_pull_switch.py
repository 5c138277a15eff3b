"""A group that leaves POP, at the desk: parts, late asks, refusals, and deaths of the worker between."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.requests.holder_asks import LeaveAsk
from ringmq.ipc.asks import Ask
from ringmq.pop import open_records, pull_switch
from ringmq.pop.check_points import HandOverError
from ringmq.pop.open_records import OpenRecords
from ringmq.pop.pull_switch import PullSwitch
from ringmq.pop.record_notice import KeptNotice, read_notice
from ringmq.services.kit.clocks import wall_ms
from tests.pop.test_table_changes import Died, Worker, offset_of

DUE_MS = wall_ms() + 60_000


class Points:
    """The check points of the windows, without bytes. `moves`: called in each pass, with its number."""

    messages = records = log_end = 0
    due_ms = DUE_MS

    def __init__(self, worker: "Switching") -> None:
        self._worker, self.refused, self.is_over, self.waiting = worker, 0, True, 0
        self.passes = 0
        self.ends: dict[int, int] = {}
        self.left_out: list[int] = []

    def begin_pass(self, ends: dict[int, int]) -> None:
        self.passes += 1
        self.ends, self.is_over = ends, False
        self._worker.moves(self.passes)

    def leave_out(self, place: int) -> None:
        self.left_out.append(place)

    def fill(self, look: int = 0, records: int = 0) -> tuple[str, int]:
        count = self._worker.found.pop(0) if self._worker.found else 0
        self.is_over = True
        self.messages += count
        self.records += count
        return "", count

    def submit(self, requests: str, count: int) -> None:
        assert self._worker.is_free, "copies are with write"
        assert read_notice(self._worker.root).until_ms > wall_ms(), "a death leaves records that a stop has to find"
        self.waiting = count

    def take_answers(self) -> int:
        if self._worker.answers:
            self.waiting = 0
        return self.waiting


class AtOnce:
    """The thread for the disk, which has done all when it is looked at."""

    def submit(self, task: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        try:
            future.set_result(task())
        except OSError as error:
            future.set_exception(error)
        return future


class Stuck:
    """The thread for the disk, which ends nothing."""

    def submit(self, task: Callable[[], object]) -> Future[object]:
        return Future()


class Switching(Worker):
    """A worker with the parts of a switch. `found`: records that each fill makes."""

    def open(self) -> None:
        super().open()
        self.root = self.memory.root
        (self.root / "pop").mkdir(exist_ok=True)
        self.found: list[int] = []
        self.moves: Callable[[int], None] = lambda number: None
        self.answers = self.is_free = True
        self.synced: list[tuple[int, int]] = []
        self.fault: OSError | None = None
        self.saved_ms = 1 << 40
        self.snapshot_failure: str | None = None
        self.said: list[str] = []
        plane: Any = self.plane
        snapshots: Any = SimpleNamespace(
            has_moment=lambda moment_ms: self.saved_ms > moment_ms, failure=self.snapshot_failure, no_room=""
        )
        self.snapshots = snapshots
        self.notice = KeptNotice(self.root)
        self.records = OpenRecords(
            plane=plane, port=plane, windows=self.windows, names=self.desk.windows, notice=self.notice,
            snapshots=snapshots, config=lambda: None, log=lambda: self,  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        self.records.points = lambda chosen: self.points  # type: ignore[method-assign,return-value,assignment]
        self.records.close()
        self.records._thread = AtOnce()  # type: ignore[assignment]
        self.points = Points(self)
        self.lines_of_switch: list[str] = []
        self.switch = PullSwitch(
            self.desk.windows, self.windows, self.records, self.offsets, lambda ask, reason: self.said.append(reason),
            self.lines_of_switch.append, clock_ns=lambda: self.clock_ns,
        )  # fmt: skip

    def sync(self, begin: int, end: int) -> None:
        """The log."""
        self.synced.append((begin, end))
        if self.fault is not None:
            raise self.fault

    def leave(self, until_ns: int = 10, topic: str = "T") -> None:
        ask: Any = SimpleNamespace(payload=LeaveAsk(until_ns, "G", topic).encode())
        record: Ask = ask
        self.switch.on_leave(record, self.now_ms)

    def step(self) -> None:
        self.records.lend(self.is_free)
        self.switch.turn(self.now_ms)

    def run(self, turns: int = 100) -> list[str]:
        """The answers that control has by then."""
        for _ in range(turns):
            if not self.switch.is_busy:
                break
            self.step()
        return self.said


@pytest.fixture
def worker(tmp_path: Path) -> Switching:
    made = Switching(tmp_path)
    made.topic("T", 2)
    made.group("G")
    made.send("T", 10)
    return made


def test_offsets_go_behind_open_messages_that_are_in_the_log(worker: Switching) -> None:
    held = worker.taken(4)
    worker.settle()
    worker.found = [1, 0]
    worker.leave()
    assert worker.run() == [""] and worker.table() == 0
    worker.drain()
    assert worker.table() == 4 and worker.points.ends[0] == 4
    worker.settle()
    assert worker.table() == 4, "no report sets it back"
    assert read_notice(worker.root).until_ms == DUE_MS and len(worker.synced) == 1
    assert worker.ack(held[2]).code == 0
    assert [offset_of(receipt) for receipt in worker.taken(1)] == [4]


def test_a_group_that_holds_nothing_waits_for_no_disk(worker: Switching) -> None:
    for receipt in worker.taken():
        worker.ack(receipt)
    worker.leave()
    assert worker.run(2) == [""] and not worker.synced and not read_notice(worker.root).until_ms
    worker.drain()
    assert worker.table() == 10, "though the second of the last report is not over"
    worker.leave(topic="Unknown")
    assert worker.run(2) == ["", ""]


def test_passes_go_on_until_one_finds_little(worker: Switching) -> None:
    worker.taken(4)
    worker.found = [open_records.FEW + 1, open_records.FEW + 1, 3, 2]
    worker.leave()
    assert worker.run() == [""] and worker.points.passes == 4


def test_messages_that_are_popped_before_the_last_pass_count(worker: Switching) -> None:
    worker.taken(4)
    worker.moves = lambda number: worker.taken(1) and None if number == 1 else None
    worker.leave()
    assert worker.run() == [""]
    worker.drain()
    assert worker.table() == 5


def test_a_change_of_an_invisible_time_meanwhile_keeps_its_notice(worker: Switching) -> None:
    """Its check point may be due behind all others."""
    worker.taken(4)
    worker.found = [1]
    worker.moves = lambda number: worker.notice.extend(DUE_MS + 5000)
    worker.leave()
    assert worker.run() == [""] and read_notice(worker.root).until_ms == DUE_MS + 5000


def test_messages_that_are_popped_behind_the_last_pass_hold_the_offset(worker: Switching) -> None:
    worker.taken(4)
    worker.saved_ms = 0
    worker.leave()
    worker.run(50)
    assert worker.said == [] and len(worker.taken(2)) == 2
    worker.saved_ms = 1 << 40
    assert worker.run() == [""]
    worker.settle()
    assert worker.table() == 4


def test_copies_and_records_do_not_share_the_port(worker: Switching) -> None:
    worker.taken(4)
    worker.found, worker.is_free, worker.answers = [1], False, False
    worker.leave()
    worker.run(50)
    assert worker.records.wants_port and not worker.records.has_port
    worker.is_free = True
    worker.run(50)
    assert worker.records.has_port and worker.said == []
    assert not worker.switch.finish(), "a stop waits for the answers"
    assert worker.said == ["the worker stops"] and read_notice(worker.root).until_ms == DUE_MS
    worker.answers = True
    assert worker.switch.finish() and not worker.records.has_port


def test_a_stop_leaves_the_notice_to_a_thread_that_writes_it(worker: Switching) -> None:
    """It would wait for the disk, too, and both write the same file."""
    worker.taken(4)
    worker.records._thread = Stuck()  # type: ignore[assignment]
    worker.leave()
    worker.run(3)
    assert worker.switch.finish() and worker.said == ["the worker stops"]
    assert not (worker.root / "pop" / "records").exists()


def test_the_flush_worker_does_most_of_a_sync(worker: Switching, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync cannot be ended, and may take longer than a stop."""
    monkeypatch.setattr(open_records, "SYNC_BYTES_MAX", 64)
    marks = worker.kit.marks
    marks.flushed_offset = marks.append_offset - 65
    worker.taken(4)
    worker.found = [1]
    worker.leave()
    assert worker.run(50) == [] and not worker.synced
    marks.flushed_offset += 1
    assert worker.run() == [""] and worker.synced == [(marks.append_offset - 65, marks.append_offset)]


def test_a_stop_does_not_wait_for_the_thread(worker: Switching) -> None:
    is_over = threading.Event()
    worker.records._thread = ThreadPoolExecutor(1)
    worker.records._thread.submit(is_over.wait)
    guard = threading.Timer(10, is_over.set)
    guard.start()
    worker.records.close()
    assert not is_over.is_set()
    is_over.set()
    guard.cancel()


def test_an_ask_whose_time_is_over_changes_nothing_and_the_next_one_ends_it(worker: Switching) -> None:
    worker.taken(4)
    worker.found, worker.saved_ms = [7], 0
    worker.leave(until_ns=10)
    worker.run(50)
    worker.clock_ns = 10
    worker.step()
    assert worker.said == ["7 open messages are in the log, 4 are open; ask again in some seconds"]
    worker.saved_ms = 1 << 40
    for _ in range(50):
        worker.step()
    worker.drain()
    assert worker.table() <= 0 and not worker.switch.is_busy
    worker.leave(until_ns=20)
    assert worker.run()[1:] == [""] and worker.points.messages == 7, "it finds what is done"
    worker.drain()
    assert worker.table() == 4


def test_a_refused_record_and_a_failed_sync_change_nothing(worker: Switching) -> None:
    worker.taken(4)
    worker.found, worker.points.refused = [1], 5
    worker.leave()
    assert worker.run() == ["write refuses a record (cause 5)"]
    worker.points.refused, worker.fault = 0, OSError("the disk is gone")
    worker.leave()
    assert worker.run()[1:] == ["the disk is gone"]
    worker.drain()
    assert worker.table() <= 0 and read_notice(worker.root).until_ms == DUE_MS, "not that of the longest time"
    assert worker.lines_of_switch[-1] == "pop: group G of topic T goes on with POP: the disk is gone"


def test_a_full_disk_for_the_image_is_told(worker: Switching) -> None:
    """A power cut would leave an older image behind newer offsets."""
    worker.taken(4)
    worker.saved_ms, worker.snapshots.no_room = 0, "pop/journal: No space left"
    worker.leave()
    assert worker.run() == ["the memory of open messages is not on the disk: pop/journal: No space left"]


def test_too_many_groups_at_a_time_are_refused(worker: Switching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_switch, "LEAVES_MAX", 1)
    worker.taken(4)
    worker.saved_ms = 0
    worker.leave()
    worker.run(50)
    worker.leave(topic="Other")
    assert worker.said == ["1 groups leave POP at a time, the limit"]
    worker.leave()
    worker.saved_ms = 1 << 40
    assert worker.run()[1:] == ["", ""], "asks for the same share one switch"


def test_a_window_that_ends_meanwhile_is_left_out(worker: Switching) -> None:
    worker.taken(4)
    worker.moves = lambda number: worker.deleted(topics=["T"]) or worker.changes.turn() if number == 1 else None
    worker.found = [1]
    worker.leave()
    assert worker.run() == [""] and worker.points.left_out
    worker.drain()
    assert worker.table() <= 0


def test_a_worker_that_dies_behind_the_store_has_moved_the_offsets(worker: Switching) -> None:
    worker.taken(4)
    worker.crash = "pop-leave-reported"
    worker.leave()
    with pytest.raises(Died):
        worker.run()
    worker.drain()
    worker.restart()
    worker.settle()
    assert worker.table() == 4 and [offset_of(receipt) for receipt in worker.taken(1)] == [4]


def test_without_queues_for_records_nothing_changes(worker: Switching) -> None:
    def refuse(chosen: object) -> None:
        raise HandOverError("the topic has no queues")

    worker.taken(4)
    worker.records.points = refuse  # type: ignore[method-assign,assignment]
    worker.leave()
    assert worker.run() == ["the topic has no queues"]
