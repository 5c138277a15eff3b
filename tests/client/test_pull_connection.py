"""Bulk pulls over a blocking socket: the bytes asked, answers however they are cut, and what ends a connection."""

import struct

import pytest

from ringmq.client.connections.pull_connection import PullConnection, PullStatus
from ringmq.client.errors import ConnectError, RequestTimeoutError
from ringmq.remoting.client_headers import PullMessageRequestHeader
from ringmq.remoting.codes import RequestCode, SerializeType
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.message_queue import MessageQueue
from tests.client.scripted_broker import ScriptedBroker, pull_answer

QUEUE = MessageQueue("Topic", "broker-a", 3)


def found(request: RemotingCommand) -> bytes:
    offset = int(request.ext_fields["queueOffset"])
    return pull_answer(request, 0, offset + 1, body=b"body of %d" % offset)


def test_a_pull_as_stocks_pull_consumer_says_it() -> None:
    with ScriptedBroker(found) as broker, PullConnection(broker.address, "group-1") as connection:
        number = connection.ask(QUEUE, 77, 32)
        (answer,) = connection.answers()
    assert (answer.number, answer.status, answer.code) == (number, PullStatus.FOUND, 0)
    assert (answer.next_offset, answer.min_offset, answer.max_offset) == (78, 0, 1000)
    assert bytes(answer.body) == b"body of 77"
    (request,) = broker.requests
    assert (request.code, request.flag) == (RequestCode.PULL_MESSAGE, 0)
    header = PullMessageRequestHeader.decode(request.ext_fields)
    assert (header.consumer_group, header.topic, header.queue_id) == ("group-1", "Topic", 3)
    assert (header.queue_offset, header.max_msg_nums, header.sys_flag) == (77, 32, 4)
    assert request.ext_fields["ringmqBulk"] == "true"
    assert (header.subscription, header.expression_type, header.suspend_timeout_millis) == ("*", "TAG", 0)
    assert encode_frame(request) == encode_frame(
        RemotingCommand.request(
            RequestCode.PULL_MESSAGE,
            request.ext_fields,
            opaque=number,
            serialize_type=SerializeType.ROCKETMQ,
        )
    )


@pytest.mark.parametrize("name", ["nextBeginOffset", "minOffset", "maxOffset"])
def test_a_field_that_is_no_number_is_named(name: str) -> None:
    def answer(request: RemotingCommand) -> bytes:
        return encode_frame(RemotingCommand.response_to(request, 0, None, {name: "soon"}, b""))

    with ScriptedBroker(answer) as broker, PullConnection(broker.address, "g") as connection:
        connection.ask(QUEUE, 0, 1)
        with pytest.raises(ConnectError, match=f"{broker.address} broke: .*field {name} is 'soon'"):
            connection.answers()


def json_answer(opaque: int, rest: bytes) -> bytes:
    header = b'{"code":0,"flag":1,"opaque":%d,%s}' % (opaque, rest)
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def test_an_answer_that_cannot_be_read_is_a_refusal_of_its_pull_alone() -> None:
    def answer(request: RemotingCommand) -> bytes:
        if request.ext_fields["queueOffset"] == "0":
            return json_answer(request.opaque, b'"remark":"\\q"')
        return json_answer(request.opaque, b'"remark":"\\ud83d","extFields":{"nextBeginOffset":"8"}')

    with ScriptedBroker(answer) as broker, PullConnection(broker.address, "g") as connection:
        numbers = [connection.ask(QUEUE, 0, 1), connection.ask(QUEUE, 7, 1)]
        answers = []
        while len(answers) < 2:
            answers += connection.answers()
    assert [answer.number for answer in answers] == numbers
    assert (answers[0].status, answers[1].status) == (PullStatus.REFUSED, PullStatus.FOUND)
    assert answers[0].remark.startswith("the answer cannot be read: JSON header does not parse")
    assert (answers[1].remark, answers[1].next_offset) == ("?", 8)


@pytest.mark.parametrize("kind", SerializeType)
def test_many_pulls_in_flight(kind: SerializeType) -> None:
    """Answers in either header's form, cut wherever the socket cuts them, with a body larger than the buffer."""

    def answer(request: RemotingCommand) -> bytes:
        offset = int(request.ext_fields["queueOffset"])
        size = 3 << 20 if offset == 5 else 40_000
        return pull_answer(request, 0, offset + 1, body=bytes([offset % 251]) * size, kind=kind)

    with ScriptedBroker(answer) as broker, PullConnection(broker.address, "g") as connection:
        offsets = {connection.ask(QUEUE, offset, 1): offset for offset in range(100)}
        while offsets:
            for got in connection.answers():
                offset = offsets.pop(got.number)
                assert got.next_offset == offset + 1
                size = 3 << 20 if offset == 5 else 40_000
                assert bytes(got.body) == bytes([offset % 251]) * size


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (19, PullStatus.NOT_YET),
        (20, PullStatus.NOTHING_MATCHED),
        (21, PullStatus.MOVED),
        (2, PullStatus.BUSY),
        (215, PullStatus.BUSY),
        (1500, PullStatus.GO_AWAY),
        (17, PullStatus.UNKNOWN_TOPIC),
        (16, PullStatus.REFUSED),
        (26, PullStatus.REFUSED),
    ],
)
def test_what_codes_mean(code: int, status: PullStatus) -> None:
    with (
        ScriptedBroker(lambda request: pull_answer(request, code, 5, remark="why")) as broker,
        PullConnection(broker.address, "g") as connection,
    ):
        connection.ask(QUEUE, 0, 1)
        (answer,) = connection.answers()
    assert (answer.status, answer.code, answer.remark, len(answer.body)) == (status, code, "why", 0)


def test_requests_of_the_broker_are_passed_over() -> None:
    def with_request(request: RemotingCommand) -> bytes:
        return encode_frame(RemotingCommand.request(40, {"consumerGroup": "g"}, oneway=True)) + found(request)

    with ScriptedBroker(with_request) as broker, PullConnection(broker.address, "g") as connection:
        connection.ask(QUEUE, 1, 1)
        assert [bytes(answer.body) for answer in connection.answers()] == [b"body of 1"]


@pytest.mark.parametrize(
    "junk",
    [struct.pack(">iI", 3, 0), struct.pack(">iI", 1 << 30, 0), struct.pack(">iI", 8, 7 << 24), b"\xff" * 64],
    ids=["short", "huge", "type", "negative"],
)
def test_a_broken_frame_ends_the_connection(junk: bytes) -> None:
    with ScriptedBroker(lambda request: junk) as broker, PullConnection(broker.address, "g") as connection:
        connection.ask(QUEUE, 1, 1)
        with pytest.raises(ConnectError, match=f"{broker.address} broke: a broken frame"):
            connection.answers()


def test_a_broker_that_hangs_up_or_is_silent() -> None:
    with ScriptedBroker(lambda request: None) as broker, PullConnection(broker.address, "g") as connection:
        connection.ask(QUEUE, 1, 1)
        with pytest.raises(ConnectError, match="closed by the broker"):
            connection.answers()
    with pytest.raises(ConnectError, match="no connection to"):
        PullConnection(broker.address, "g")
    with (
        ScriptedBroker(lambda request: b"") as silent,
        PullConnection(silent.address, "g", answer_timeout_ms=50) as connection,
    ):
        connection.ask(QUEUE, 1, 1)
        with pytest.raises(RequestTimeoutError, match="within 50 ms"):
            connection.answers()
