"""Copies in retry topics: when they are read, how they are written for a consumer, and late acknowledgements."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import Stage, receipts

from ringmq.ipc.ports import mark_of
from ringmq.native import ffi, lib
from ringmq.pop.retry_answers import retry_record
from ringmq.pop.role_words import Counter

V1, V2 = "%RETRY%G_T", "%RETRY%G+T"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic with its retry topic of the first form."""
    made = Stage(tmp_path / "store", pop_from_retry_probability=0)
    made.topic("T")
    made.group("G")
    made.topic(V1)
    yield made


def copy(stage: Stage, receipt: str, topic: str = V1, **fields: object) -> None:
    """Store the copy of a message whose time is over, as revival does."""
    window = stage.desk.window_of(group_id(stage), slot(stage, "T"))
    assert window is not None
    offset = int(receipt.split(" ")[7])
    due = ffi_due(stage)
    assert offset in due
    mark = mark_of(lib.RMQ_ROLE_POP, window.window_id, offset)
    properties = b"UNIQ_KEY\x01ABC\x02TAGS\x01a\x02"
    stage.send(topic, 1, bodies=[b"body"], properties=properties, prepared_transaction_offset=mark,
               flags=lib.RMQ_APPEND_FLAG_COPY, **fields)  # fmt: skip
    end = int(stage.kit.marks.append_offset)
    lib.rmq_pop_copied(stage.windows, window.window_id, offset, end)
    lib.rmq_pop_flushed(stage.windows, end)


def ffi_due(stage: Stage) -> set[int]:
    """The messages whose time is over."""
    due = ffi.new("struct rmq_pop_due[]", 64)
    count = lib.rmq_pop_due(stage.windows, (1 << 62), due, 64)
    return {int(due[number].queue_offset) for number in range(count)}


def group_id(stage: Stage) -> int:
    found = stage.plane.group_find("G")
    assert found is not None
    return found


def slot(stage: Stage, topic: str) -> int:
    topic_id = stage.plane.topic_find(topic)
    assert topic_id is not None
    return stage.kit.queue_slot(topic_id, 0)


def test_a_copy_comes_with_the_topic_that_was_asked_for_and_a_receipt(stage: Stage) -> None:
    stage.send("T", 1)
    (receipt,) = receipts(stage.pop())
    copy(stage, receipt)
    answer = stage.pop()
    assert answer.fields["msgOffsetInfo"] == "1 0 0"
    (message,) = answer.messages
    assert (message.topic, message.body) == ("T", b"body")
    assert message.prepared_transaction_offset == 0, "our mark is no business of clients"
    (made,) = receipts(answer)
    assert message.properties["POP_CK"] == made
    assert message.properties["UNIQ_KEY"] == "ABC"
    assert stage.ack(message.properties["POP_CK"], topic=V1).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 1


def test_the_twin_writes_the_same_record(stage: Stage) -> None:
    stage.send("T", 1)
    (receipt,) = receipts(stage.pop())
    copy(stage, receipt)
    before = stage.kit.records()[-1][1]
    answer = stage.pop()
    (made,) = receipts(answer)
    assert answer.command.body == retry_record(before, "T", made)


@pytest.mark.parametrize("size", [0, 1024, 1025, 60_000])
def test_bodies_of_any_size(stage: Stage, size: int) -> None:
    """A large body stays in the log, and is a piece of the answer."""
    stage.topic(V2)
    stage.set(enable_retry_topic_v2=True, retrieve_message_from_pop_retry_topic_v1=False)
    stage.send(V2, 1, bodies=[b"x" * size], properties=b"K\x01v")
    answer = stage.pop()
    (message,) = answer.messages
    assert message.body == b"x" * size
    assert answer.fields["msgOffsetInfo"] == "2 0 0"
    assert message.properties == {"K": "v", "POP_CK": receipts(answer)[0]}
    assert answer.verdict.pieces == (2 if size <= 1024 else 4)


def test_a_late_ack_withdraws_the_copy(stage: Stage) -> None:
    stage.send("T", 2)
    first, second = receipts(stage.pop())
    due = ffi_due(stage)
    assert due == {0, 1}
    window = stage.desk.window_of(group_id(stage), slot(stage, "T"))
    assert window is not None
    for offset in (0, 1):
        mark = mark_of(lib.RMQ_ROLE_POP, window.window_id, offset)
        stage.send(
            V1, 1, bodies=[b"copy %d" % offset], prepared_transaction_offset=mark, flags=lib.RMQ_APPEND_FLAG_COPY
        )
        lib.rmq_pop_copied(stage.windows, window.window_id, offset, int(stage.kit.marks.append_offset))
    lib.rmq_pop_flushed(stage.windows, int(stage.kit.marks.append_offset))
    stage.ack(first)
    answer = stage.pop()
    assert [message.body for message in answer.messages] == [b"copy 1"]
    assert answer.fields["msgOffsetInfo"] == "1 0 1"
    assert stage.desk.native.counted(Counter.PASSED_OVER) == 1
    assert stage.pop().code == 210
    stage.ack(second)
    assert stage.desk.native.counted(Counter.ACKS_LATE) >= 1, "its copy has been popped"


def test_only_withdrawn_copies_make_an_empty_answer(stage: Stage) -> None:
    stage.send("T", 1)
    (receipt,) = receipts(stage.pop())
    copy(stage, receipt)
    stage.ack(receipt)
    assert stage.pop().code == 210
    retry = stage.desk.window_of(group_id(stage), slot(stage, V1))
    assert retry is not None
    assert stage.desk.windows.native(retry).next_offset == 1


def test_a_mark_of_before_the_ids_began_again_withdraws_nothing(stage: Stage) -> None:
    """Another window has its id now. The copy must come, whatever was acknowledged there."""
    stage.send("T", 1)
    (receipt,) = receipts(stage.pop())
    copy(stage, receipt)
    stage.ack(receipt)
    stage.memory.header.marks_from = stage.kit.marks.append_offset
    stage.restart()
    assert stage.pop().fields["msgOffsetInfo"] == "1 0 0"
    assert stage.desk.native.counted(Counter.PASSED_OVER) == 0


def test_the_actual_topic_if_the_broker_says_so(stage: Stage) -> None:
    stage.send("T", 1)
    (receipt,) = receipts(stage.pop())
    copy(stage, receipt)
    stage.set(pop_response_return_actual_retry_topic=True)
    (message,) = stage.pop().messages
    assert message.topic == V1
    assert "POP_CK" not in message.properties


@pytest.mark.parametrize("probability", [0, 100])
def test_retries_come_first_or_last(stage: Stage, probability: int) -> None:
    stage.set(pop_from_retry_probability=probability)
    stage.send("T", 1)
    stage.send(V1, 1)
    flags = [entry[0] for entry in stage.pop().fields["msgOffsetInfo"].split(";")]
    assert flags == (["1", "0"] if probability else ["0", "1"])


def test_retries_wait_while_the_topic_fills_the_answer(stage: Stage) -> None:
    stage.send("T", 4)
    stage.send(V1, 1)
    assert stage.pop(maxMsgNums=4).fields["msgOffsetInfo"] == "0 0 0,1,2,3"
    assert stage.pop(maxMsgNums=4).fields["msgOffsetInfo"] == "1 0 0"


def test_one_answer_has_one_form_of_retry_topics(stage: Stage) -> None:
    """A client could not tell their entries apart."""
    stage.topic(V2)
    stage.set(enable_retry_topic_v2=True)
    stage.send(V1, 20)
    stage.send(V2, 20)
    seen = set()
    while (answer := stage.pop(maxMsgNums=4)).code == 0:
        (entry,) = answer.fields["msgOffsetInfo"].split(";")
        seen.add(entry[0])
    assert seen == {"1", "2"}
    assert not stage.desk.native.take_trouble()


def test_a_retry_topic_with_a_long_name(stage: Stage) -> None:
    """It needs the record format for long names; the answer has the one for short ones."""
    topic, group = "T" * 100, "G" * 60
    stage.topic(topic)
    stage.group(group)
    stage.topic(f"%RETRY%{group}_{topic}")
    stage.send(f"%RETRY%{group}_{topic}", 1)
    (message,) = stage.pop(topic, group).messages
    assert (message.topic, message.body) == (topic, b"m0")


def test_a_copy_on_disk_is_read_before_it_is_given(stage: Stage) -> None:
    """The loop that answers acknowledgements waits for no disk."""
    stage.send("T", 1)
    stage.send(V1, 1)
    stage.kit.header.settings.memory_window_bytes = 0
    answer = stage.pop()
    assert answer.fields["msgOffsetInfo"] in ("0 0 0", "0 0 0;1 0 0"), "what is in memory comes"


PAIRS = (
    b"", b"K\x01v", b"K\x01v\x02", b"POP_CK\x01old\x02", b"POP_CK\x01\x02", b"\x01x\x02", b"POP_CK\x02",
    b"a\x01b\x02POP_CK\x01c",
    b"L\x01" + b"x" * 32_740 + b"\x02",
)  # fmt: skip


@pytest.mark.parametrize("topic", ["T", "T" * 127, "T" * 128, "T\xe9" * 80])
@pytest.mark.parametrize("properties", PAIRS, ids=range(len(PAIRS)))
@pytest.mark.parametrize("body", [0, 1, 1024, 1025])
def test_any_record_is_written_as_the_twin_writes_it(topic: str, properties: bytes, body: int) -> None:
    receipt, source = "0 1 2 3 1 broker-a 0 0", encoded(b"%RETRY%G_" + b"T" * 130, properties, b"b" * body)
    for record in (source, source[:-1], source[:90], b"", bytes(4) + source[4:]):
        wanted = retry_record(record, topic, receipt)
        found = native_retry(record, topic, receipt)
        assert found == wanted
    assert (retry_record(source, topic, receipt) is None) == (len(properties) > 32_000)


def encoded(topic: bytes, properties: bytes, body: bytes) -> bytes:
    """A record of the log."""
    kept = [ffi.from_buffer(part) for part in (topic, properties, body)]
    record = ffi.new("struct rmq_record_in *", {
        "topic": ffi.cast("uint8_t *", kept[0]), "topic_length": len(topic), "body_length": len(body),
        "body": ffi.cast("uint8_t *", kept[2]), "prepared_transaction_offset": 77, "born_time_ms": 5,
    })  # fmt: skip
    record.properties[0], record.properties_length[0] = ffi.cast("uint8_t *", kept[1]), len(properties)
    size = lib.rmq_record_size(record)
    out = ffi.new("uint8_t[]", size)
    assert lib.rmq_record_encode(out, size, record) == size
    return bytes(ffi.buffer(out))


def native_retry(record: bytes, topic: str, receipt: str) -> bytes | None:
    """The record as C writes it, out of its pieces."""
    room, name = 40_000, topic.encode()
    inline = ffi.new("uint8_t[]", room)
    made = ffi.new("struct rmq_pop_body *", {"inline_bytes": inline, "inline_room": room, "segment_bytes": 1 << 20})
    code = lib.rmq_pop_body_add_retry(made, 0, record, len(record), name, len(name), receipt.encode(), len(receipt))
    if code < 0:
        assert (made.piece_count, made.bytes) == (0, 0)
        return None
    found, at = b"", 0
    for number in range(made.piece_count):
        piece = made.pieces[number]
        if piece.position == lib.RMQ_RECORD_INLINE:
            found += bytes(ffi.buffer(inline + at, piece.size))
            at += piece.size
        else:
            found += record[piece.position : piece.position + piece.size]
    assert len(found) == made.bytes
    return found
