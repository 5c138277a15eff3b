"""Resets and deletions at the desk: what consumers hold ends with them, whichever process dies in between."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringmq.broker.requests.holder_asks import DeletionAsk, ResetAsk
from ringmq.ipc.asks import Ask
from ringmq.native import lib
from ringmq.pop.offsets import PASS_MS, Offsets
from ringmq.pop.role_words import Counter
from ringmq.pop.table_changes import TableChanges
from tests.pop.desk_stage import GROUP_ON, ROLE, WINDOWS_MAX, Stage, receipts


class Died(Exception):
    """The worker is killed at a crash point."""


class Inbox:
    """Answers to control. `room`: of the ring of answers."""

    def __init__(self) -> None:
        self.room = 100
        self.said: list[bytes] = []

    def answer_role(self, ask: Ask, payload: bytes) -> bool:
        if len(self.said) == self.room:
            return False
        self.said.append(payload)
        return True


class Worker(Stage):
    """The desk of a process, with the parts that report offsets and take the changes of tables."""

    def open(self) -> None:
        super().open()
        plane: Any = self.plane
        inbox: Any = Inbox()
        self.clock_ns = 1
        self.crash = ""
        self.inbox = inbox
        self.offsets = Offsets(
            plane, self.plane.port_of(ROLE), self.windows, self.desk.windows, WINDOWS_MAX, self.lines.append,
            self.desk.wake_group, step=self._passed,
        )  # fmt: skip
        self.changes = TableChanges(
            plane, inbox, self.desk.windows, self.offsets, self.desk.look_for_retries, clock_ns=lambda: self.clock_ns
        )

    def _passed(self, step: str) -> None:
        if step == self.crash:
            raise Died(step)

    def look(self) -> None:
        """A pass over all offsets, a second later."""
        self.now_ms += PASS_MS
        while self.offsets.turn(self.now_ms):
            pass

    def drain(self) -> None:
        """Control takes the reports."""
        assert lib.rmq_offset_drain(self.kit.plane) >= 0

    def settle(self) -> None:
        """Reports and looks, until both agree."""
        for _ in range(3):
            self.look()
            self.drain()

    def reset(self, offsets: dict[int, int], topic: str = "T", until_ns: int = 10) -> str:
        """Control asks for a reset. Returns the answer."""
        ask: Any = type("Record", (), {"payload": ResetAsk(until_ns, "G", topic, offsets).encode()})
        self.changes.on_reset(ask, self.now_ms)
        return bytes(self.inbox.said.pop()).decode()

    def deleted(self, groups: Sequence[str] = (), topics: Sequence[str] = ()) -> None:
        """Control tells of a deletion."""
        ask: Any = type("Record", (), {"payload": DeletionAsk(groups, topics).encode()})
        self.changes.on_deleted(ask, self.now_ms)

    def table(self, queue_id: int = 0) -> int:
        group_id, topic_id = self.plane.group_find("G"), self.plane.topic_find("T")
        assert group_id is not None
        assert topic_id is not None
        slot = self.plane.queue_find(topic_id, queue_id)
        return int(lib.rmq_offset_get(self.kit.plane, group_id, slot))

    def commit(self, offset: int) -> None:
        """A client commits an offset of queue 0."""
        group_id, topic_id = self.plane.group_find("G"), self.plane.topic_find("T")
        assert topic_id is not None
        assert lib.rmq_offset_put(self.kit.plane, group_id, self.plane.queue_find(topic_id, 0), offset) == 0

    def taken(self, count: int = 32) -> list[str]:
        """The receipts of a pop."""
        answer = self.pop(maxMsgNums=count)
        return receipts(answer) if answer.code == 0 else []


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path)
    made.topic("T", 2)
    made.group("G")
    made.send("T", 10)
    yield made


def offset_of(receipt: str) -> int:
    return int(receipt.split()[7])


def test_a_reset_gives_open_and_acknowledged_messages_again_at_once(worker: Worker) -> None:
    before = worker.taken()
    for receipt in before[:4]:
        worker.ack(receipt)
    worker.settle()
    assert worker.table() == 4 and worker.taken() == []
    assert worker.reset({0: 2}) == ""
    again = worker.taken()
    assert [offset_of(receipt) for receipt in again] == list(range(2, 10))
    assert all(worker.ack(receipt).code == 0 for receipt in before[4:]), "without effect, as in RocketMQ"
    worker.settle()
    assert worker.table() == 2
    for receipt in again:
        worker.ack(receipt)
    worker.settle()
    assert worker.table() == 10


def test_a_pop_goes_on_behind_what_members_have_pulled(worker: Worker) -> None:
    """No pass over the offsets comes between: a group that turns to POP sees nothing twice."""
    held = worker.taken(2)
    worker.settle()
    worker.commit(7)
    assert [offset_of(receipt) for receipt in worker.taken(1)] == [7]
    worker.commit(500_000)
    assert [offset_of(receipt) for receipt in worker.taken()] == [8, 9], "an offset beyond the end passes over nothing"
    assert worker.ack(held[0]).code == 0


def test_a_reset_beyond_all_that_was_given_takes_nothing_from_consumers(worker: Worker) -> None:
    held = worker.taken(3)
    assert worker.reset({0: 8}) == ""
    worker.settle()
    assert worker.table() == 8
    assert [offset_of(receipt) for receipt in worker.taken()] == [8, 9]
    for receipt in held:
        worker.ack(receipt)
    assert worker.desk.native.counted(Counter.ACKS) == 3


def test_a_reset_behind_the_end_passes_over_no_later_message(worker: Worker) -> None:
    """RocketMQ lets an operator ask for one offset more than the end."""
    held = worker.taken()
    assert worker.reset({0: 11}) == ""
    worker.drain()
    assert worker.table() == 10
    worker.send("T", 2)
    worker.settle()
    assert [offset_of(receipt) for receipt in worker.taken()] == [10, 11]
    for receipt in held:
        worker.ack(receipt)
    assert worker.desk.native.counted(Counter.ACKS) == 10, "consumers keep what they hold"


@pytest.mark.parametrize("is_known", [True, False], ids=["popped", "not popped"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_an_offset_beyond_the_end_passes_over_no_later_message(worker: Worker, is_known: bool, is_killed: bool) -> None:
    if is_known:
        worker.taken()
        worker.settle()
    worker.commit(1_000_000)
    if is_known:
        worker.look()
    else:
        assert worker.taken() == []
    worker.send("T", 2)
    if is_killed:
        worker.restart()
    worker.settle()
    assert worker.table() == 10
    assert [offset_of(receipt) for receipt in worker.taken()] == [10, 11]


def test_a_smaller_offset_beyond_the_end_begins_at_the_end(worker: Worker) -> None:
    worker.commit(1_000_000)
    assert worker.taken() == []
    worker.commit(500_000)
    worker.settle()
    assert worker.table() == 10
    worker.send("T", 1)
    assert [offset_of(receipt) for receipt in worker.taken()] == [10]


def test_a_group_begins_at_an_offset_that_dispatch_has_not_reached(worker: Worker) -> None:
    """Behind a start the log reaches further than dispatch has come."""
    topic_id = worker.plane.topic_find("T")
    assert topic_id is not None
    worker.kit.queue(topic_id, 0).log_end = 12
    worker.commit(12)
    assert worker.taken() == []
    worker.settle()
    assert worker.table() == 12
    worker.send("T", 3)
    assert [offset_of(receipt) for receipt in worker.taken()] == [12]


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_a_reset_of_an_orderly_group_ends_its_batch(worker: Worker, offset: int) -> None:
    batch = receipts(worker.pop(maxMsgNums=3, order="true"))
    assert worker.pop(maxMsgNums=3, order="true").code == 210
    assert worker.reset({0: offset}) == ""
    again = [offset_of(receipt) for receipt in receipts(worker.pop(maxMsgNums=3, order="true"))]
    assert again == [offset, offset + 1, offset + 2]
    for receipt in batch:
        worker.ack(receipt)
    worker.settle()
    assert worker.table() == offset, "receipts of before have no effect"


def test_a_reset_beyond_an_old_batch_takes_nothing_from_consumers(worker: Worker) -> None:
    """The batch is done, and the group pops in no order since."""
    for receipt in receipts(worker.pop(maxMsgNums=2, order="true")):
        worker.ack(receipt)
    held = worker.taken(3)
    assert worker.reset({0: 9}) == ""
    for receipt in held:
        worker.ack(receipt)
    assert worker.desk.native.counted(Counter.ACKS) == 5


def test_a_reset_between_open_messages_ends_those_before_it(worker: Worker) -> None:
    worker.taken()
    assert worker.reset({0: 6}) == ""
    worker.settle()
    assert worker.table() == 6
    assert [offset_of(receipt) for receipt in worker.taken()] == [6, 7, 8, 9]
    assert lib.rmq_pop_counts_of(worker.windows).open == 4


def test_all_queues_have_their_offsets_by_one_store(worker: Worker) -> None:
    worker.send("T", 5, 1)
    worker.taken()
    worker.settle()
    worker.crash = "pop-reset-reported"
    with pytest.raises(Died):
        worker.reset({0: 3, 1: 4})
    worker.drain()
    assert (worker.table(0), worker.table(1)) == (3, 4)


@pytest.mark.parametrize("point", ["", "pop-reset-reported", "pop-window-reset"])
@pytest.mark.parametrize("is_drained", [False, True])
def test_a_worker_that_dies_behind_the_report_has_reset_the_group(worker: Worker, point: str, is_drained: bool) -> None:
    """Control may die, too: nobody asks again."""
    worker.send("T", 5, 1)
    for receipt in worker.taken():
        worker.ack(receipt)
    worker.settle()
    worker.crash = point
    try:
        worker.reset({0: 3, 1: 4})
        assert not point
    except Died:
        pass
    if is_drained:
        worker.drain()
    worker.restart()
    worker.settle()
    assert (worker.table(0), worker.table(1)) == (3, 4)
    again = sorted((int(receipt.split()[6]), offset_of(receipt)) for receipt in worker.taken())
    assert again == [(0, offset) for offset in range(3, 10)] + [(1, 4)]


def test_a_pass_that_is_under_way_does_not_undo_a_reset(worker: Worker) -> None:
    """The table still has the larger offset, until control takes the report."""
    for receipt in worker.taken():
        worker.ack(receipt)
    worker.settle()
    worker.offsets._begin()
    assert worker.reset({0: 3}) == ""
    worker.offsets.turn(worker.now_ms)
    assert [offset_of(receipt) for receipt in worker.taken()] == list(range(3, 10))


def test_a_group_without_windows_is_reset_in_the_table(worker: Worker) -> None:
    assert worker.reset({0: 7, 5: 1}) == "" and worker.reset({0: 1}, topic="Unknown") == ""
    worker.drain()
    assert worker.table() == 7
    assert [offset_of(receipt) for receipt in worker.taken()] == [7, 8, 9]


def test_a_late_ask_changes_nothing(worker: Worker) -> None:
    """Control has told the client so."""
    worker.taken()
    worker.clock_ns = 10
    assert worker.reset({0: 3}) == "it had no time for the reset"
    worker.drain()
    assert worker.table() == -1 and worker.taken() == []


def test_a_full_ring_of_reports_changes_nothing(worker: Worker) -> None:
    worker.taken()
    worker.send("T", 1, 1)
    ring = worker.kit.header.ports.port[worker.plane.port_of(ROLE)].commit
    while ring.capacity - (ring.head - ring.tail) > 1:
        assert worker.reset({0: 10}) == ""
    assert "too many consumer offsets wait for control" in worker.reset({0: 3, 1: 0})
    worker.drain()
    assert worker.table() == 10 and worker.table(1) == -1
    assert worker.reset({0: 3, 1: 0}) == ""


def test_without_an_id_for_another_window_nothing_changes(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.taken()
    window = lib.rmq_pop_window_at(worker.windows, 0)
    lib.rmq_pop_set_unmarked(worker.windows, 0, 0)

    def add(*names: Any) -> int:
        raise OSError(28, "no room")

    monkeypatch.setattr(worker.names, "add", add)
    assert "no room" in worker.reset({0: 3})
    worker.drain()
    assert (window.next_offset, worker.table()) == (10, -1)


def test_polls_look_again_behind_a_reset(worker: Worker) -> None:
    worker.taken()
    hold = worker.pop(pollTime=60_000)
    assert hold.hold is not None
    assert worker.reset({0: 6}) == ""
    worker.turn()
    answer = worker.verdict()
    assert answer is not None
    assert [offset_of(receipt) for receipt in receipts(answer)] == [6, 7, 8, 9]


@pytest.mark.parametrize("what", ["topic", "group"])
def test_polls_of_deleted_names_are_asked_again_at_once(worker: Worker, what: str) -> None:
    worker.taken()
    assert worker.pop(pollTime=60_000).hold is not None
    if what == "topic":
        delete_topic(worker)
        worker.deleted(topics=["T"])
    else:
        delete_group(worker)
        worker.deleted(groups=["G"])
    assert worker.inbox.said == []
    assert worker.changes.turn() and worker.inbox.said == [b""] and not worker.changes.is_busy
    worker.turn()
    answer = worker.verdict()
    assert answer is not None
    assert (answer.verdict.type, answer.verdict.flags) == (lib.RMQ_VERDICT_REDO, lib.RMQ_VERDICT_HELD)


def delete_topic(worker: Worker) -> None:
    topic_id = worker.plane.topic_find("T")
    lib.rmq_topic_set(worker.kit.plane, topic_id, 0)


def delete_group(worker: Worker) -> None:
    group_id = worker.plane.group_find("G")
    lib.rmq_group_set(worker.kit.plane, group_id, 0)


@pytest.mark.parametrize(("groups", "topics", "left"), [
    (["G"], [], {("H", "T"), ("H", "U")}),
    ([], ["U"], {("G", "T"), ("H", "T")}),
    (["G"], ["U"], {("H", "T")}),
    (["X"], ["Y"], {("G", "T"), ("G", "U"), ("H", "T"), ("H", "U")}),
])  # fmt: skip
def test_windows_of_deleted_names_end(
    worker: Worker, groups: list[str], topics: list[str], left: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.topic("U")
    worker.send("U", 3)
    worker.group("H")
    for group in ("G", "H"):
        for topic in ("T", "U"):
            assert worker.pop(topic, group).code == 0
    monkeypatch.setattr("ringmq.pop.table_changes.STEPS_PER_TURN", 1)
    worker.deleted(groups, topics)
    turns = 0
    while worker.changes.turn():
        turns += 1
        assert len(worker.inbox.said) == (not worker.changes.is_busy)
    assert {(key.group, key.topic) for key in worker.desk.windows._known} == left
    assert worker.inbox.said == [b""]


def test_a_group_that_is_made_anew_begins_with_nothing_open(worker: Worker) -> None:
    """It has the same number in the plane."""
    held = worker.taken()
    delete_group(worker)
    worker.deleted(groups=["G"])
    worker.changes.turn()
    lib.rmq_group_set(worker.kit.plane, worker.plane.group_find("G"), GROUP_ON)
    assert lib.rmq_pop_counts_of(worker.windows).open == 0
    again = worker.taken()
    assert [offset_of(receipt) for receipt in again] == list(range(10))
    for receipt in held:
        worker.ack(receipt)
    assert lib.rmq_pop_counts_of(worker.windows).open == 10


def test_answers_wait_for_room(worker: Worker) -> None:
    worker.inbox.room = 0
    worker.deleted(groups=["X"])
    worker.changes.turn()
    assert worker.changes.is_busy and worker.inbox.said == []
    worker.inbox.room = 1
    worker.changes.turn()
    assert worker.inbox.said == [b""] and not worker.changes.is_busy
