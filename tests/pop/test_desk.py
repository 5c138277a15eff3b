"""The desk serves consumers: pops, acknowledgements and changes, from the inbox to the answer."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import CHANGE, POP, READER, Stage, receipts
from plane_kit import maps_of

from ringmq.broker.requests.request import Request
from ringmq.ipc.plane import NONE
from ringmq.native import ffi, lib
from ringmq.pop.requests import PopRequests
from ringmq.pop.role_words import Counter
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.store.config_files import ConfigFileError


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of four queues, with ten messages in queue 1."""
    made = Stage(tmp_path / "store", entries_max=16_384)
    made.topic("T", 4)
    made.group("G")
    made.send("T", 10, 1)
    yield made


def test_a_pop_gives_messages_and_acks_end_them(stage: Stage) -> None:
    answer = stage.pop(maxMsgNums=4)
    assert (answer.code, answer.command.remark) == (0, "FOUND")
    assert answer.fields["msgOffsetInfo"] == "0 1 0,1,2,3"
    assert answer.fields["startOffsetInfo"] == "0 1 0"
    assert answer.fields["restNum"] == "6"
    assert [message.body for message in answer.messages] == [b"m0", b"m1", b"m2", b"m3"]
    assert answer.verdict.type == lib.RMQ_VERDICT_RECORDS
    assert answer.verdict.pieces == 2, "the header, and four neighbours in the log"
    for receipt in receipts(answer):
        assert stage.ack(receipt).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 4
    assert stage.pop(maxMsgNums=4).fields["msgOffsetInfo"] == "0 1 4,5,6,7"


def test_one_answer_has_messages_of_several_queues(stage: Stage) -> None:
    for queue_id in (0, 3):
        stage.send("T", 3, queue_id)
    answer = stage.pop()
    entries = dict(entry.rsplit(" ", 1) for entry in answer.fields["msgOffsetInfo"].split(";"))
    assert entries == {"0 0": "0,1,2", "0 1": "0,1,2,3,4,5,6,7,8,9", "0 3": "0,1,2"}
    assert len(answer.messages) == 16
    assert answer.fields["restNum"] == "0"
    queues = [message.queue_id for message in answer.messages]
    assert [int(receipt.split(" ")[6]) for receipt in receipts(answer)] == queues, "in the order of the body"


def test_each_queue_comes_first_in_its_turn(stage: Stage) -> None:
    for queue_id in range(4):
        stage.send("T", 100, queue_id)
    first = {stage.pop(maxMsgNums=1).fields["msgOffsetInfo"].split(" ")[1] for _ in range(60)}
    assert first == {"0", "1", "2", "3"}


def test_one_queue_may_be_asked_for(stage: Stage) -> None:
    assert stage.pop(queueId=0).code == 210
    assert stage.pop(queueId=1, maxMsgNums=2).fields["msgOffsetInfo"] == "0 1 0,1"


def test_revive_queues_go_round(stage: Stage) -> None:
    assert [stage.pop(maxMsgNums=1).fields["reviveQid"] for _ in range(10)] == [str(n % 8) for n in range(10)]


def test_a_pop_that_finds_nothing_is_answered_at_once(stage: Stage) -> None:
    stage.pop()
    answer = stage.pop()
    assert (answer.code, answer.command.remark, answer.messages) == (210, "NO_MESSAGE_IN_QUEUE", [])
    assert answer.fields["startOffsetInfo"] == answer.fields["msgOffsetInfo"] == ""
    assert (answer.fields["restNum"], answer.fields["invisibleTime"]) == ("0", "60000")
    assert stage.desk.native.counted(Counter.EMPTY) == 1


def test_a_pop_without_an_answer_takes_nothing(stage: Stage) -> None:
    stage.put(POP, {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 1, "pollTime": 0,
        "bornTime": 0, "initMode": 0,
    }, oneway=True)  # fmt: skip
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    assert answer.verdict.type == lib.RMQ_VERDICT_DROP
    assert len(stage.pop().messages) == 10


@pytest.mark.parametrize("odd", [False, True])
def test_an_ack_counts_once(stage: Stage, odd: bool) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1, odd=odd))
    for _ in range(2):
        answer = stage.ack(receipt, odd=odd)
        assert (answer.code, answer.command.remark, answer.fields) == (0, None, {})
    assert stage.desk.native.counted(Counter.ACKS) == 1
    assert stage.desk.native.counted(Counter.ACKS_LATE) == 1


@pytest.mark.parametrize(
    ("number", "value"),
    [(0, "7"), (1, "1"), (1, "-5"), (3, "6"), (7, "9")],
)
def test_a_receipt_of_another_pop_has_no_effect(stage: Stage, number: int, value: str) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    parts = receipt.split(" ")
    parts[number] = value
    is_same = number == 3  # the number of the revive queue says nothing
    assert stage.ack(" ".join(parts)).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == int(is_same)


def test_a_receipt_of_another_broker_has_no_effect(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    assert stage.ack(receipt.replace("broker-a", "broker-b")).code == 0
    assert stage.desk.native.counted(Counter.ACKS_FOREIGN) == 1
    assert stage.ack(receipt + " 4711").code == 0, "a door adds a field"
    assert stage.desk.native.counted(Counter.ACKS) == 1


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("queue", ["-1", "-2147483648", "2147483647"])
def test_a_change_answers_with_the_revive_queue_of_the_receipt(stage: Stage, queue: str, odd: bool) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    parts = receipt.split(" ")
    parts[3] = queue
    assert stage.ack(" ".join(parts), code=CHANGE, invisibleTime=5000, odd=odd).fields["reviveQid"] == queue


@pytest.mark.parametrize("odd", [False, True])
def test_a_change_gives_another_time_and_another_receipt(stage: Stage, odd: bool) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    answer = stage.ack(receipt, code=CHANGE, invisibleTime=5000, odd=odd)
    assert (answer.code, answer.command.remark) == (0, "not set any response code")
    assert answer.fields["invisibleTime"] == "5000"
    assert answer.fields["reviveQid"] == receipt.split(" ")[3]
    assert int(answer.fields["popTime"]) > int(receipt.split(" ")[1]) - 1
    stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 0, "the old receipt is void"
    parts = receipt.split(" ")
    parts[1:3] = answer.fields["popTime"], "5000"
    stage.ack(" ".join(parts))
    assert stage.desk.native.counted(Counter.ACKS) == 1


def test_a_change_by_a_receipt_of_before_a_reset_gets_no_newer_receipt(stage: Stage) -> None:
    """The message was popped again meanwhile, by the same connection and with the same time."""
    (old,) = receipts(stage.pop(maxMsgNums=1))
    window = stage.desk.window_of(1, stage.kit.queue_slot(1, 1))
    assert window is not None
    stage.desk.windows.begin_at(window, 0)
    (new,) = receipts(stage.pop(maxMsgNums=1))
    answer = stage.ack(old, code=CHANGE, invisibleTime=60_000)
    assert answer.code == 0
    parts = new.split(" ")
    stage.ack(" ".join([parts[0], answer.fields["popTime"], *parts[2:]]))
    assert stage.desk.native.counted(Counter.ACKS) == 0, "another consumer may work on the message"


def test_messages_stay_open_over_the_death_of_the_process(stage: Stage) -> None:
    first, second = receipts(stage.pop(maxMsgNums=2))
    stage.restart()
    assert stage.pop(maxMsgNums=1).fields["msgOffsetInfo"] == "0 1 2"
    assert stage.ack(first).code == stage.ack(second).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 2
    stage.restart()
    stage.ack(first)
    assert stage.desk.native.counted(Counter.ACKS) == 2


def test_an_answer_that_no_client_has_received_is_given_again(stage: Stage) -> None:
    answer = stage.pop(maxMsgNums=3)
    assert answer.verdict.flags & lib.RMQ_VERDICT_TELLS
    told = ffi.new("struct rmq_unsent *", {
        "answerer_generation": stage.kit.header.roles[lib.RMQ_ROLE_POP].generation, "asker_generation": 5,
        "serial": answer.verdict.serial, "reason": lib.RMQ_UNSENT_GONE,
    })  # fmt: skip
    for _ in range(2):
        head = ffi.new("struct rmq_inbox_record *", {
            "type": lib.RMQ_INBOX_UNSENT, "role": READER, "role_generation": 5, "pending": NONE,
        })  # fmt: skip
        put = lib.rmq_inbox_put(stage.kit.plane, stage.answerer, head, told, ffi.sizeof("struct rmq_unsent"), ffi.NULL)
        assert put == 0
        stage.turn()
    assert stage.desk.native.counted(Counter.UNSENT) == 1
    again = stage.pop(maxMsgNums=32)
    assert again.fields["msgOffsetInfo"] == "0 1 0,1,2", "what was returned comes first, and alone of its queue"
    assert again.fields["startOffsetInfo"] == "0 1 0"
    stage.ack(receipts(answer)[0])
    assert stage.desk.native.counted(Counter.ACKS) == 0, "the receipts of the lost answer are void"
    assert stage.pop().fields["msgOffsetInfo"] == "0 1 3,4,5,6,7,8,9"
    for receipt in receipts(again):
        stage.ack(receipt)
    assert stage.desk.native.counted(Counter.ACKS) == 3


def test_answers_in_the_ring_of_a_dead_read_worker_are_given_again(stage: Stage) -> None:
    stage.put(POP, {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 4, "invisibleTime": 9000, "pollTime": 0,
        "bornTime": 0, "initMode": 0,
    })  # fmt: skip
    stage.turn()
    stage.kit.header.roles[READER].generation = 6
    stage.now_ms += 1000
    stage.turn()
    assert stage.desk.native.counted(Counter.UNSENT) == 1
    while stage.verdict() is not None:
        pass
    stage.generation = 6
    assert stage.pop().fields["msgOffsetInfo"] == "0 1 0,1,2,3"


@pytest.mark.parametrize("dead", [4, 3])
def test_answers_in_the_ring_of_a_live_read_worker_are_not_given_again(stage: Stage, dead: int) -> None:
    """A desk meets first a request of a read worker that had died before the desk began. Its replacement is stopped
    for a while, and sends its answers later."""
    asked = {
        "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 4, "invisibleTime": 9000, "pollTime": 0,
        "bornTime": 0, "initMode": 0,
    }  # fmt: skip
    for generation in (dead, 4, 5):
        stage.generation = generation
        stage.put(POP, asked)
    stage.turn()
    stage.now_ms += 1000
    stage.turn()
    assert stage.desk.native.counted(Counter.UNSENT) == 0
    stage.kit.header.roles[READER].generation = 6
    stage.now_ms += 1000
    stage.turn()
    assert stage.desk.native.counted(Counter.UNSENT) == 1, "once it is dead, its own answer is given again"


def test_a_full_ring_of_answers_loses_no_message(stage: Stage) -> None:
    """Answers that find no room wait in the desk, and nothing was given for them before."""
    stage.send("T", 3000, 2)
    asked = {
        "consumerGroup": "G", "topic": "T", "queueId": 2, "maxMsgNums": 1, "invisibleTime": 9000, "pollTime": 0,
        "bornTime": 0, "initMode": 0, "exp": None,
    }  # fmt: skip
    count, seen = 2500, set[int]()
    for _ in range(count):
        stage.put(POP, asked)
    for _ in range(200):
        stage.turn()
        while (answer := stage.verdict()) is not None:
            seen.update(int(receipt.split(" ")[7]) for receipt in receipts(answer))
        if len(seen) == count:
            break
    assert seen == set(range(count))


def test_times_of_requests_are_counted(stage: Stage) -> None:
    latency = stage.kit.header.latency[lib.RMQ_ROLE_POP][lib.RMQ_SERVICES_LATENCY_ANSWERED]
    before = sum(latency.counts)
    stage.pop(received_ns=time.monotonic_ns())
    assert sum(latency.counts) == before + 1


def test_messages_that_pops_give_count_for_group_and_queue(stage: Stage) -> None:
    bodies = [stage.pop(maxMsgNums=count).command.body for count in (4, 2)]
    port = stage.kit.header.ports.port[stage.plane.port_of(lib.RMQ_ROLE_POP)]
    (counted,) = ffi.cast("struct rmq_pull_stats *", stage.plane.struct.base + port.pull_stats_at)[
        0 : port.pull_stats.count
    ]
    topic, group = stage.plane.topic_find("T"), stage.plane.group_find("G")
    assert topic is not None and group is not None
    assert counted.key == group << 32 | int(stage.plane.queue_find(topic, 1) or 0)
    assert (counted.messages, counted.next_offset) == (6, 6)
    assert counted.bytes == sum(map(len, bodies)) > 0


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_time_from_a_pop_to_its_acknowledgement_is_counted_by_messages(stage: Stage, is_batch: bool) -> None:
    """A bucket holds times below a power of two of a ms."""
    times = stage.kit.header.latency[lib.RMQ_ROLE_POP][lib.RMQ_POP_LATENCY_ACKED]
    found = receipts(stage.pop(maxMsgNums=3))
    time.sleep(0.02)  # span: the messages are open so long
    if is_batch:
        stage.turn()  # it sets the time
        start, popped_ms = (int(number) for number in found[0].split(" ")[:2])
        assert stage.desk.native.ack_bits("G", "T", 0, 1, start, popped_ms, b"\x03") == 2
    else:
        for receipt in found[:2]:
            stage.ack(receipt)
    stage.ack(found[1])  # it is done already
    assert sum(times.counts) == 2 == sum(list(times.counts)[5:]), "from 16 ms on"
    assert 2 * 20 <= times.sum_ns / 1000 < 2 * 60_000


@pytest.mark.parametrize("odd", [False, True])
def test_a_slow_request_is_named(stage: Stage, odd: bool) -> None:
    stage.pop(received_ns=time.monotonic_ns() - 1_000_000_000, odd=odd)
    stage.now_ms += 500
    stage.turn()
    assert any("POP_MESSAGE" in line for line in stage.lines), stage.lines


def test_an_unknown_code_is_answered(stage: Stage) -> None:
    answer = stage.ask(200056, {})
    assert answer.code == 3


def test_no_page_of_the_log_is_touched(stage: Stage) -> None:
    """A pop looks at units alone: it waits for no record that is on disk."""
    file = stage.kit.root / "commitlog" / f"{0:020d}"
    before = maps_of(file)
    for receipt in receipts(stage.pop()):
        stage.ack(receipt)
    assert maps_of(file) == before


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "names"), ConfigFileError("a damaged file")])
def test_a_window_that_cannot_be_made(stage: Stage, error: Exception, odd: bool) -> None:
    def fail(*_: object) -> int:
        raise error

    stage.names.add = fail  # type: ignore[method-assign]
    answer = stage.pop(odd=odd)
    assert answer.code == 1
    assert answer.command.remark == f"POP cannot begin: {error}"
    del stage.names.add
    assert stage.pop().code == 0


def test_a_header_may_have_its_code_anywhere(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """C serves it as it serves those of stock's clients."""

    def with_code_last(command: RemotingCommand) -> bytes:
        frame = encode_frame(command)
        end = 8 + int.from_bytes(frame[5:8])
        header = json.loads(frame[8:end])
        code = header.pop("code")
        text = json.dumps({**header, "code": code}, separators=(",", ":")).encode()
        assert len(text) == end - 8
        return frame[:8] + text + frame[end:]

    def on_request(request: Request) -> None:
        raise AssertionError(f"Python has got {request.command}")

    stage.pop(maxMsgNums=1)  # Python makes the windows of a group once
    monkeypatch.setattr(PopRequests, "on_request", lambda self, request: on_request(request))
    monkeypatch.setattr("desk_stage.encode_frame", with_code_last)
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    assert stage.ack(receipt).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 1
