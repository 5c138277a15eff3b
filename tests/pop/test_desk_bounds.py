"""Bounds of the desk: entries in all and of one group, open messages of a queue, windows, sizes of answers."""

from pathlib import Path

import pytest
from desk_stage import Stage, receipts

from ringmq.native import lib
from ringmq.pop.role_words import Counter


def stage_of(root: Path, count: int, queues: int = 1, **more: object) -> Stage:
    """A topic with this many messages in each queue."""
    made = Stage(root / "store", **more)  # type: ignore[arg-type]
    made.topic("T", queues)
    made.group("G")
    made.group("H")
    for queue_id in range(queues):
        made.send("T", count, queue_id)
    return made


def test_a_group_has_a_share_of_the_entries(tmp_path: Path) -> None:
    """A group that pops and never acknowledges takes nothing that another needs."""
    stage = stage_of(tmp_path, 400, entries_max=1024)
    taken = 0
    while stage.pop(maxMsgNums=1, queueId=0).code == 0:
        taken += 1
    assert taken == 1024 // 4
    assert stage.desk.native.counted(Counter.BOUND) == 1
    stage.now_ms += 2000
    stage.turn()
    (line,) = [line for line in stage.lines if "found too many messages" in line]
    assert "ringmqPopOpenMax" in line
    assert stage.pop(group="H").code == 0


def test_acks_give_the_share_back(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, 400, entries_max=1024)
    answers = []
    while (answer := stage.pop(maxMsgNums=1)).code == 0:
        answers.append(answer)
    stage.ack(receipts(answers[0])[0])
    assert stage.pop(maxMsgNums=1).code == 0
    assert stage.pop(maxMsgNums=1).code == 210


def test_full_pops_share_an_entry(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, 700, entries_max=1024)
    taken = 0
    while (answer := stage.pop()).code == 0:
        taken += len(answer.messages)
    assert taken == 700, "more messages than a share has entries"


def test_no_entry_is_left(tmp_path: Path) -> None:
    """Pops are answered empty and changes are refused. Acknowledgements go on."""
    stage = stage_of(tmp_path, 100, entries_max=128)
    kept = []
    for group in ("G", "H", "I", "J", "K"):
        stage.group(group)
        while (answer := stage.pop(maxMsgNums=1, group=group)).code == 0:
            kept += [(group, receipt) for receipt in receipts(answer)]
    left = int(lib.rmq_pop_entries_free(stage.windows))
    assert left < 64
    group, receipt = kept[0]
    answer = stage.ack(receipt, group, code=200053, invisibleTime=1)
    assert (answer.code, answer.command.remark) == (1, "too many messages are open: see ringmqPopOpenMax")
    for group, receipt in kept:
        assert stage.ack(receipt, group).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == len(kept)
    assert stage.pop().code == 0


def test_open_messages_of_a_queue_are_bounded_where_the_broker_says_so(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, 100, queues=2, pop_inflight_message_threshold=20)
    assert len(stage.pop(queueId=0).messages) == 32
    assert len(stage.pop(queueId=0).messages) == 32, "enablePopMessageThreshold is off"
    stage.set(enable_pop_message_threshold=True)
    answer = stage.pop(queueId=0)
    assert (answer.code, answer.fields["restNum"]) == (210, "36")
    assert {receipt.split(" ")[6] for receipt in receipts(stage.pop())} == {"1"}, "other queues go on"


def test_messages_that_no_client_has_received_do_not_count_for_the_bound(tmp_path: Path) -> None:
    """Their time never ends: nothing else would make room."""
    stage = stage_of(tmp_path, 100, enable_pop_message_threshold=True, pop_inflight_message_threshold=20)
    lost = stage.pop()
    stage.unsent(lost.verdict)
    stage.turn()
    again = stage.pop()
    assert [receipt.split(" ")[7] for receipt in receipts(again)] == [str(offset) for offset in range(32)]
    assert stage.pop().code == 210


def test_windows_are_bounded(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store", offsets_max=4)
    stage.topic("T", 3)
    stage.topic("U", 3)
    stage.group("G")
    stage.send("T", 1)
    stage.send("U", 1)
    assert stage.pop().code == 0
    answer = stage.pop("U")
    assert answer.code == 210
    assert answer.command.remark == ("the broker holds 4 windows of groups and queues, its limit: see ringmqOffsetsMax")
    assert stage.pop().code == 210, "those that are there go on"
    assert stage.desk.native.counted(Counter.BOUND) == 1


@pytest.mark.parametrize(("size", "wanted"), [(100, 12), (30_000, 8), (300_000, 1)])
def test_an_answer_has_the_bytes_of_a_pull(tmp_path: Path, size: int, wanted: int) -> None:
    stage = stage_of(tmp_path, 0, queues=4)
    for number in range(1, 8):
        stage.kit.create_segment(number << 20)
    for queue_id in range(4):
        stage.send("T", 0, queue_id, bodies=[b"x" * size] * 3)
        stage.send("T", 0, queue_id, bodies=[b"y" * 10] * 10)
    first = stage.pop()
    count = len(first.messages)
    assert sum(len(message.body) == size for message in first.messages) <= wanted
    assert len(first.frame) <= 262_144 + 300_000 * (count == 1)
    total, answer = count, first
    while answer.code == 0:
        answer = stage.pop()
        total += len(answer.messages)
    assert total == 52, "the others come with the next pops"


def test_an_answer_from_the_disk_has_fewer(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, 40)
    stage.kit.header.settings.memory_window_bytes = 0
    assert len(stage.pop().messages) == 8


def test_the_border_of_memory_lies_in_an_answer(tmp_path: Path) -> None:
    """The read worker takes the bounds of the disk for a range that begins there."""
    stage = stage_of(tmp_path, 40)
    records = stage.kit.records()
    stage.kit.header.settings.memory_window_bytes = stage.kit.marks.append_offset - records[3][0]
    assert len(stage.pop().messages) == 8
