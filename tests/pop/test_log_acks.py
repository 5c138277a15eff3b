"""Acknowledgements and changes of messages with a check point in the log: records first, then entries and answers."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import ACK, BATCH_ACK, BROKER, CHANGE, ROLE, Answer, Stage

from ringmq.native import ffi, lib
from ringmq.pop.log_acks_twin import Ack, Change, LogEntry, Written, batch
from ringmq.pop.memory import remove_lasting
from ringmq.pop.record_notice import NONE, RecordNotice, read_notice
from ringmq.pop.revive_records import Acks, Pop, read_record
from ringmq.services.kit.clocks import wall_ms
from ringmq.store import layout
from ringmq.store.record import parse_record

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
INVISIBLE_MS = 600_000
MESSAGES = 64


class LogStage(Stage):
    """A desk whose consumers have messages with check points in the log. The test is write, as far as it says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, has_log_acks=True)
        self.topic(REVIVE, 8)
        self.topic(layout.TIMER_TOPIC)
        self.topic("T")
        self.group("G")
        self.send("T", MESSAGES)
        self.turn()
        assert self.log_acks is not None
        self.acks = self.log_acks.native
        self.port = self.kit.header.ports.port[self.plane.port_of(ROLE)]
        self.receipts = [
            receipt for _ in range(2) for receipt in self.receipts_of(self.pop(invisibleTime=INVISIBLE_MS))
        ]
        for receipt in self.receipts[:: MESSAGES // 2]:
            start, time_ms = receipt.split(" ")[:2]
            lib.rmq_pop_note_in_log(self.windows, 0, int(start), int(time_ms))

    @staticmethod
    def receipts_of(answer: Answer) -> list[str]:
        fields, (_, queue, start) = answer.fields, answer.fields["startOffsetInfo"].split(" ")
        offsets = fields["msgOffsetInfo"].split(" ")[2].split(",")
        times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
        return [f"{start} {times} 0 {BROKER} {queue} {offset}" for offset in offsets]

    def ask_ack(self, number: int, code: int = ACK, **fields: Any) -> int:
        """Ask for an acknowledgement, or a change. Returns its token."""
        receipt = self.receipts[number]
        asked = {"consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": receipt, "offset": number}
        return self.put(code, asked | fields)

    def ask_batch(self, numbers: list[int], *, odd: bool = False) -> int:
        parts = self.receipts[numbers[0]].split(" ")
        bits = sum(1 << number - int(parts[0]) for number in numbers)
        text = base64.b64encode(bits.to_bytes(8, "little").rstrip(b"\0")).decode()
        ack = {
            "c": "G", "t": "T", "r": "0", "so": int(parts[0]), "q": 0, "rq": int(parts[3]), "pt": int(parts[1]),
            "it": int(parts[2]), "b": text,
        }  # fmt: skip
        return self.put(BATCH_ACK, {}, json.dumps({"brokerName": BROKER, "acks": [ack]}).encode(), odd=odd)

    def hold(self) -> None:
        """Acts wait, as while another batch is with write."""
        self.acks.flying += 1

    def go_on(self) -> None:
        """They go to write as one batch."""
        self.turn()
        self.acks.flying -= 1
        self.turn()

    def requests(self) -> list[Any]:
        """What write has not taken yet."""
        ring = self.port.request
        return [self.kit.slot("struct rmq_request *", ring, at) for at in range(ring.tail, ring.head)]

    def write(self) -> list[Written]:
        """Write stores what waits, and the desk learns of it. Returns the records."""
        begin = int(self.kit.marks.append_offset)
        ties = [bool(one.flags & lib.RMQ_APPEND_FLAG_WITH_NEXT) for one in self.requests()]
        with self.kit.writer() as write:
            write()
        self._take()
        data = self.kit.log(begin, int(self.kit.marks.append_offset))
        return [self._written(record, tie) for record, tie in zip(_records(data), ties, strict=True)]

    def refuse(self, cause: int) -> None:
        """Write refuses what waits."""
        for one in self.requests():
            done = ffi.new("struct rmq_completion *", {"token": one.token, "code": 1, "cause": cause})
            lib.rmq_pop_log_stored(self.acks, done)
        self.port.request.tail = self.port.request.head
        self.turn()

    def _take(self) -> None:
        self.take_completions()
        self.turn()

    def take_completions(self) -> None:
        done = ffi.new("struct rmq_completion *")
        while lib.rmq_port_take(self.kit.plane, self.acks.port, done):
            assert done.token & lib.RMQ_POP_LOG_TOKEN
            lib.rmq_pop_log_stored(self.acks, done)

    @staticmethod
    def _written(record: Any, is_tied: bool) -> Written:
        pairs = record.properties
        read = read_record(pairs["TAGS"], record.body)
        assert pairs["REAL_TOPIC"] == REVIVE and record.topic == layout.TIMER_TOPIC
        early_ms = 1000 if pairs["TAGS"] == "ck" else 0
        return Written(read, int(pairs["REAL_QID"]), int(pairs["TIMER_DELIVER_MS"]) + early_ms, is_tied)

    def answers(self) -> dict[int, Answer]:
        """Answers by the tokens of their asks."""
        self.turn()
        found = {}
        while (answer := self.verdict()) is not None:
            found[int(answer.verdict.pending)] = answer
        return found

    def pop_of(self, number: int, start: int | None = None, time_ms: int | None = None) -> Pop:
        parts = self.receipts[number].split(" ")
        start = int(parts[0]) if start is None else start
        return Pop("T", "G", 0, start, int(parts[1]) if time_ms is None else time_ms, BROKER)

    def entries(self) -> list[LogEntry]:
        """The two pops, with all messages open."""
        half = MESSAGES // 2
        return [
            LogEntry(self.pop_of(at), INVISIBLE_MS, int(self.receipts[at].split(" ")[3]), range(at, at + half))
            for at in (0, half)
        ]

    @property
    def open_messages(self) -> int:
        return int(lib.rmq_pop_open_messages(self.windows, 0))


def _records(data: bytes) -> Iterator[Any]:
    while data:
        _, record = parse_record(data, -1)
        assert record is not None
        yield record
        data = data[int.from_bytes(data[:4]) :]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LogStage]:
    yield LogStage(tmp_path / "store")
    remove_lasting(tmp_path / "store")


def test_the_answer_follows_the_record(stage: LogStage) -> None:
    token = stage.ask_ack(3)
    assert stage.answers() == {} and stage.open_messages == MESSAGES
    assert stage.write() == batch([Ack(stage.pop_of(3), [3])], stage.entries())
    assert stage.open_messages == MESSAGES - 1
    assert {pending: one.code for pending, one in stage.answers().items()} == {token: 0}


def test_what_comes_while_a_batch_is_written_shares_records(stage: LogStage) -> None:
    first = stage.ask_ack(3)
    stage.turn()
    tokens = [stage.ask_ack(number) for number in (9, 4, 33, 4, 40)] + [stage.ask_batch([5, 7])]
    assert stage.answers() == {} and len(stage.requests()) == 1
    stage.write()
    assert set(stage.answers()) == {first}
    assert [written.record for written in stage.write()] == [
        Acks(stage.pop_of(at), offsets) for at, offsets in ((0, (4, 5, 7, 9)), (33, (33, 40)))
    ]
    assert sorted(stage.answers()) == tokens
    assert stage.open_messages == MESSAGES - 7


@pytest.mark.parametrize("odd", [False, True])
def test_a_batch_of_a_client_is_answered_behind_its_record(stage: LogStage, odd: bool) -> None:
    token = stage.ask_batch([0, 2, 31], odd=odd)
    assert stage.answers() == {}
    assert stage.write() == batch([Ack(stage.pop_of(0), [0, 2, 31])], stage.entries())
    assert stage.answers()[token].code == 0
    assert stage.open_messages == MESSAGES - 3


def test_a_change_stores_its_check_point_with_the_end_of_the_old_one(stage: LogStage) -> None:
    token = stage.ask_ack(5, CHANGE, invisibleTime=900_000)
    assert stage.answers() == {}
    written = stage.write()
    answer = stage.answers()[token]
    time_ms, revive_queue = int(answer.fields["popTime"]), int(answer.fields["reviveQid"])
    change = Change(stage.pop_of(5), 5, stage.pop_of(5, 5, time_ms), 900_000, revive_queue)
    assert written == batch([change], stage.entries())
    assert stage.open_messages == MESSAGES
    assert read_notice(stage.memory.root).until_ms > time_ms + 900_000
    stage.receipts[5] = f"5 {time_ms} 900000 {revive_queue} 0 {BROKER} 0 5"
    stage.ask_ack(5)
    stage.turn()
    entry = LogEntry(stage.pop_of(5), 900_000, revive_queue, [5])
    assert stage.write() == batch([Ack(stage.pop_of(5), [5])], [entry])
    assert stage.open_messages == MESSAGES - 1


def test_a_notice_that_is_long_for_a_while_spares_no_change_its_own(stage: LogStage) -> None:
    """It ends with the switch that needs it."""
    assert stage.log_acks is not None
    notice, far_ms = stage.log_acks._notice, wall_ms() + 20 * 86_400_000
    notice.keep(RecordNotice(0, far_ms))
    stage.ask_ack(5, CHANGE, invisibleTime=900_000)
    stage.turn()
    assert wall_ms() + 900_000 < stage.acks.until_ms == notice.asked_ms < far_ms == notice.now.until_ms


def test_a_notice_does_not_end_before_changes_that_wait(stage: LogStage) -> None:
    """Their check points come behind a drain."""
    assert stage.log_acks is not None
    stage.log_acks.hold(True)
    stage.ask_ack(5, CHANGE, invisibleTime=900_000)
    stage.turn()
    stage.log_acks.end_notice()
    assert read_notice(stage.memory.root).until_ms > wall_ms() + 900_000
    stage.log_acks.hold(False)
    stage.turn()
    stage.write()
    assert stage.log_acks.is_idle
    stage.log_acks.end_notice()
    assert read_notice(stage.memory.root) == NONE and not stage.acks.until_ms, "the next change needs another"


def test_the_check_point_of_a_change_without_effect_is_acknowledged(stage: LogStage) -> None:
    """The acknowledgement came first, and both were on their way."""
    stage.hold()
    stage.ask_ack(5)
    stage.ask_ack(5, CHANGE, invisibleTime=900_000)
    stage.go_on()
    acked, point, old = (written.record for written in stage.write())
    assert old == acked and stage.open_messages == MESSAGES - 1
    [undone] = stage.write()
    assert (undone.record.pop, undone.record.offsets) == (point.pop, (5,))  # type: ignore[union-attr]
    assert [one.code for one in stage.answers().values()] == [0, 0]
    assert stage.write() == [] and stage.log_acks is not None and stage.log_acks.is_idle


def test_a_refused_record_keeps_the_acknowledgement_and_undoes_the_change(stage: LogStage) -> None:
    """As in RocketMQ. The memory knows the acknowledgement."""
    stage.hold()
    acked, changed = stage.ask_ack(5), stage.ask_ack(6, CHANGE, invisibleTime=900_000)
    stage.go_on()
    stage.refuse(lib.RMQ_FAULT_DISK_FULL)
    answers = stage.answers()
    assert answers[acked].code == 0 and stage.open_messages == MESSAGES - 1
    assert answers[changed].code == 1 and "keeps its time" in str(answers[changed].command.remark)
    stage.now_ms += 1000
    stage.turn()
    assert f"write refuses records of acknowledgements (cause {lib.RMQ_FAULT_DISK_FULL})" in stage.lines[-1]
    assert stage.ask_ack(6) and stage.answers() == {}
    assert len(stage.requests()) == 1, "the old receipt counts, and is that of the check point"


def test_names_of_records_do_not_outlive_their_texts(stage: LogStage) -> None:
    """The acknowledgement beside a copy has those of the last record, if these are of the same group and queue."""
    stage.ask_ack(3)
    stage.turn()
    stage.write()
    assert stage.acks.names[0].length == len("G")
    stage.set(revive_queue_num=4)
    stage.now_ms += 1000
    stage.turn()
    assert stage.acks.room.revive_queues == 4 and not stage.acks.names[0].length


def test_each_batch_of_copies_looks_for_its_names(stage: LogStage) -> None:
    """A slot may have another topic by then."""
    stage.ask_ack(3)
    stage.turn()
    copies = ffi.new("struct rmq_pop_copies *", {"log_acks": stage.acks})
    assert lib.rmq_pop_copies_fill(copies, ffi.NULL, ffi.NULL) == 0 and not stage.acks.names[0].length


def test_acknowledgements_without_room_wait(stage: LogStage) -> None:
    used, stage.acks.answers_used = stage.acks.answers_used, lib.RMQ_POP_LOG_ANSWERS_MAX
    token = stage.ask_ack(3)
    assert stage.answers() == {} and stage.requests() == []
    stage.acks.answers_used = used
    stage.turn()
    stage.write()
    assert stage.answers()[token].code == 0


def test_nothing_goes_to_write_while_other_records_need_the_port(stage: LogStage) -> None:
    assert stage.log_acks is not None and not stage.log_acks.hold(True)
    token = stage.ask_ack(3)
    stage.turn()
    assert stage.requests() == [] and stage.log_acks.is_answered and not stage.log_acks.is_idle
    assert stage.log_acks.hold(False)
    stage.turn()
    stage.write()
    assert stage.answers()[token].code == 0


def test_a_stop_ends_what_is_stored(stage: LogStage) -> None:
    """Else the memory has a message as open whose check point has ended."""
    stage.ask_ack(3)
    stage.turn()
    with stage.kit.writer() as write:
        write()
    stage.take_completions()
    assert stage.open_messages == MESSAGES
    stage.desk.finish(stage.now_ms)
    assert stage.open_messages == MESSAGES - 1


def test_a_window_that_ends_meanwhile_has_its_answers(stage: LogStage) -> None:
    token = stage.ask_ack(3)
    stage.turn()
    waiting = stage.ask_ack(4)
    stage.turn()
    lib.rmq_pop_window_drop(stage.windows, 0)
    stage.write()
    assert {pending: one.code for pending, one in stage.answers().items()} == {token: 0, waiting: 0}
    assert stage.requests() == []


@pytest.mark.parametrize("seed", range(12))
def test_both_make_the_same_batches(stage: LogStage, seed: int) -> None:
    chance, entries = random.Random(seed), stage.entries()
    opened, changes = set(range(MESSAGES)), 0
    for _ in range(6):
        acts: list[Ack | Change] = []
        stage.hold()
        for number in chance.choices(sorted(opened), k=chance.choice((1, 3, 12))):
            if chance.random() < 0.8 or number >= 32:
                stage.ask_ack(number)
                acts.append(Ack(stage.pop_of(number), [number]))
            elif not changes:
                changes += 1
                stage.ask_ack(number, CHANGE, invisibleTime=INVISIBLE_MS)
                acts.append(Change(stage.pop_of(number), number, stage.pop_of(number, number, 0), INVISIBLE_MS, 0))
            opened.discard(number)
            stage.turn()
        stage.go_on()
        found = [_without_time(written) for written in stage.write()]
        assert found == [_without_time(written) for written in batch(acts, entries)]
        while stage.write():
            pass
        entries = [one._replace(offsets=set(one.offsets) & opened) for one in entries]


def _without_time(written: Written) -> Written:
    """A check point gets the time of its change."""
    if not written.is_tied:
        return written
    point = written.record._replace(pop=written.record.pop._replace(pop_time_ms=0))
    return written._replace(record=point, due_ms=0, revive_queue=0)
