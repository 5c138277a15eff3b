"""The test worker's choice of messages, and its frames."""

import pytest

from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.store.consume_queue import Unit
from tests.polls.poll_core import Lane, lane_number
from tests.polls.poll_wire import (
    ACK,
    FOUND,
    POLL,
    Answer,
    ack_request,
    answer_head,
    name_of,
    poll_request,
    read_answer,
    with_opaque,
)


def lane(first: int = 0) -> Lane:
    return Lane(0, 0, first)


def test_each_message_is_named_by_one_answer() -> None:
    one = lane(5)
    assert list(one.candidates()) == [(5, 32)]
    one.name(1, range(5, 9))
    assert list(one.candidates()) == [(9, 32)]
    assert one.low == 5
    assert one.received(1) and one.low == 9
    assert not one.received(1)


def test_messages_that_are_free_again_come_first() -> None:
    one = lane()
    one.name(1, range(4))
    one.name(2, range(4, 8))
    one.name(3, [8, 10])
    assert one.free(1) == range(4) and one.free(3) == [8, 10]
    assert list(one.candidates(8)) == [(0, 4), (8, 1), (10, 1), (11, 2)]
    assert list(one.candidates(3)) == [(0, 3)]
    one.name(4, [0, 1, 2, 3, 8])
    assert list(one.candidates(8)) == [(10, 1), (11, 7)]
    assert one.low == 0
    assert one.received(2) and one.received(4) and one.low == 10


def test_an_answer_is_taken_back_once() -> None:
    one = lane()
    one.name(1, range(4))
    assert one.free(1) and not one.free(1) and not one.received(1)
    one.name(2, range(4))
    assert one.received(2) and not one.free(2)
    assert one.low == 4


def test_retention_takes_what_is_free() -> None:
    one = lane()
    one.name(1, range(4))
    one.free(1)
    assert one.skip_to(2) and list(one.candidates(4)) == [(2, 2), (4, 2)]
    assert one.skip_to(9) and list(one.candidates(4)) == [(9, 4)]
    assert not one.skip_to(9)
    one.restart(3)
    assert one.low == 3


@pytest.mark.parametrize(("group", "queue", "number"), [("polls-0", 0, 0), ("polls-1", 3, 11), ("polls-3", 7, 31)])
def test_lanes(group: str, queue: int, number: int) -> None:
    assert lane_number(group, queue) == number


@pytest.mark.parametrize(("group", "queue"), [("polls-4", 0), ("polls-0", 8), ("polls--1", 0), ("other", 0)])
def test_no_lanes(group: str, queue: int) -> None:
    with pytest.raises(ValueError, match=r"lane|literal"):
        lane_number(group, queue)


def units(*places: tuple[int, int], first: int = 0) -> list[Unit]:
    """Units of records at these positions, with these sizes."""
    return [Unit(first + number, position, size, 0) for number, (position, size) in enumerate(places)]


def test_requests_and_answers() -> None:
    poll = decode_frame(with_opaque(poll_request(1, "polls-0", "T", 3, 500, 9, again=True), 70_000))
    assert (poll.code, poll.opaque) == (POLL, 70_000)
    assert poll.ext_fields == {"group": "polls-0", "topic": "T", "queue": "3", "wait": "500", "of": "9", "again": "1"}
    ack = decode_frame(ack_request(7, (2, 0xFFFFFFFF)))
    assert (ack.code, name_of(ack.ext_fields["n"])) == (ACK, (2, 0xFFFFFFFF))
    frame = answer_head(FOUND, 5, (3, 4), 6) + b"bodies"
    assert read_answer(frame) == Answer(FOUND, 5, (3, 4), b"bodies")
    assert decode_frame(frame).ext_fields == {"n": "0000000300000004"}
    assert read_answer(encode_frame(RemotingCommand(code=2, opaque=8, flag=1, remark="busy"))) == Answer(2, 8)
