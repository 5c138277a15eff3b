"""Sends through the read role: what is stored, what is answered, what is left to control."""

import select
import socket
import struct

import pytest
from plane_kit import element
from reader_kit import BOTH, Client, MakeKit, ReaderKit, connected, request, send_frame
from waiting import wait_until

from ringmq.native import lib
from ringmq.remoting.codes import SerializeType

ADDITIONS = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    kit.set_additions(ADDITIONS)
    kit.start("write")
    kit.start("read")
    return kit


def stored(kit: ReaderKit) -> list[tuple[bytes, str]]:
    """(body, properties without the broker's additions) of every record."""
    rows = []
    for _, data, view in kit.records():
        properties = data[view.properties_at : view.properties_at + view.properties_length]
        assert properties.endswith(ADDITIONS)
        own = properties.removesuffix(ADDITIONS).decode()
        rows.append((data[view.body_at : view.body_at + view.body_length], own))
    return rows


@pytest.mark.parametrize("serialise", BOTH)
def test_single_send_is_stored_and_answered_as_stock_does(kit: ReaderKit, serialise: SerializeType) -> None:
    properties = "KEYS\x01k1 k2\x02UNIQ_KEY\x01C0A8000100002A9F\x02WAIT\x01true\x02TAGS\x01TagÄ\x02"
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", b"hello", properties, queue=2, opaque=38, serialise=serialise, h="77"))
    assert (answer.code, answer.opaque, answer.flag, answer.version) == (0, 38, 1, 479)
    assert (answer.language, answer.serialize_type, answer.remark, answer.body) == ("JAVA", serialise, None, b"")
    assert answer.ext_fields == {
        "queueId": "2", "transactionId": "C0A8000100002A9F", "msgId": "7F00000100002A9F0000000000000000",
        "TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "queueOffset": "0",
    }  # fmt: skip
    ((offset, data, view),) = kit.records()
    assert stored(kit) == [(b"hello", properties)]
    assert (offset, view.queue_id, view.flag, view.sys_flag, view.born_time_ms) == (0, 2, 77, 0, 1700000000000)
    assert data[view.born_host_at : view.born_host_at + 4] == bytes([127, 0, 0, 1])
    assert data[view.topic_at : view.topic_at + view.topic_length] == b"TopicA"


@pytest.mark.parametrize("serialise", BOTH)
def test_long_names_of_code_10(kit: ReaderKit, serialise: SerializeType) -> None:
    fields = {
        "queueId": "3", "producerGroup": "PG", "flag": "0", "sysFlag": "0", "reconsumeTimes": "2", "batch": "false",
        "topic": "TopicA", "unitMode": "false", "bornTimestamp": "1795211169644",
        "properties": "UNIQ_KEY\x01AB\x02", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    }  # fmt: skip
    with connected(kit) as client:
        answer = client.ask(request(10, fields, b"code 10", serialise=serialise))
    assert (answer.code, answer.ext_fields["queueId"], answer.ext_fields["transactionId"]) == (0, "3", "AB")
    ((_, _, view),) = kit.records()
    assert (view.queue_id, view.reconsume_times, view.born_time_ms) == (3, 2, 1795211169644)


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("properties", [None, "KEYS\x01k\x02", "KEYS\x01k"])
def test_missing_uniq_key_is_made(kit: ReaderKit, serialise: SerializeType, properties: str | None) -> None:
    with connected(kit) as client:
        answers = [client.ask(send_frame("TopicA", b"x", properties, serialise=serialise)) for _ in range(2)]
    made = [answer.ext_fields["transactionId"] for answer in answers]
    assert len(set(made)) == 2
    assert all(len(key) == 32 and key.startswith("7F000001") for key in made)
    own = "" if properties is None else "KEYS\x01k\x02"
    assert stored(kit) == [(b"x", f"{own}UNIQ_KEY\x01{key}\x02") for key in made]


@pytest.mark.parametrize("serialise", BOTH)
def test_pairs_of_the_broker_and_broken_ones_are_replaced(kit: ReaderKit, serialise: SerializeType) -> None:
    sent = (
        "a\x01b\x02MSG_REGION\x01other\x02x\x02UNIQ_KEY\x01K\x02TRACE_ON\x01false\x02CLUSTER\x01z\x02KEYS\x01\x02"
        "POP_CK\x010 1 2\x02PO\x01p\x02c\x01d"
    )
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", b"x", sent, serialise=serialise))
    assert answer.ext_fields["transactionId"] == "K"
    assert stored(kit) == [(b"x", "a\x01b\x02UNIQ_KEY\x01K\x02PO\x01p\x02c\x01d\x02")]


@pytest.mark.parametrize("serialise", BOTH)
def test_batch(kit: ReaderKit, serialise: SerializeType) -> None:
    elements = [element(b"one", b"KEYS\x011\x02"), element(b"", b""), element(b"three", b"TAGS\x01t\x02")]
    with connected(kit) as client:
        answer = client.ask(send_frame("TopicA", b"".join(elements), queue=1, batch=True, serialise=serialise))
    offsets = [offset for offset, _, _ in kit.records()]
    assert answer.ext_fields["msgId"].split(",") == [f"7F00000100002A9F{offset:016X}" for offset in offsets]
    assert (answer.ext_fields["queueOffset"], answer.ext_fields["transactionId"]) == ("0", "0123456789ABCDEF")
    assert [body for body, _ in stored(kit)] == [b"one", b"", b"three"]


def test_queue_minus_one_goes_round(kit: ReaderKit) -> None:
    with connected(kit) as client:
        used = [client.ask(send_frame("TopicA", b"x", queue=-1)).ext_fields["queueId"] for _ in range(8)]
    assert sorted(used) == sorted("01230123")


def test_oneway_is_stored_and_not_answered(kit: ReaderKit) -> None:
    with connected(kit) as client:
        client.send(send_frame("TopicA", b"quiet", flag=2))
        wait_until(lambda: kit.marks.append_offset, "the oneway message is stored")
        assert client.ask(send_frame("TopicA", b"loud", opaque=99)).opaque == 99
    assert [body for body, _ in stored(kit)] == [b"quiet", b"loud"]


def test_pipelined_sends_of_every_size_straddle_buffers(kit: ReaderKit) -> None:
    kit.create_segment(1 << 20)
    kit.create_segment(2 << 20)
    bodies = [bytes([n % 251]) * (1 + n * 37 % 9000) for n in range(400)]
    frames = [send_frame("TopicA", body, opaque=n, serialise=BOTH[n % 2]) for n, body in enumerate(bodies)]
    data = b"".join(frames)
    with connected(kit) as client:
        seen = []
        for at in range(0, len(data), 100_000):
            client.send(data[at : at + 100_000])
        while len(seen) < len(bodies):
            answer = client.answer()
            assert answer.code == 0, answer.remark
            seen.append(answer.opaque)
    assert sorted(seen) == list(range(len(bodies)))


def test_one_byte_at_a_time(kit: ReaderKit) -> None:
    frame = send_frame("TopicA", b"slow")
    with connected(kit) as client:
        for at in range(len(frame)):
            client.send(frame[at : at + 1])
        assert client.answer().code == 0
    assert stored(kit)[0][0] == b"slow"


def test_many_clients_at_once(kit: ReaderKit) -> None:
    with connected(kit) as first:
        others = [connected(kit) for _ in range(60)]
        clients = [first, *(other.__enter__() for other in others)]
        for turn in range(5):
            for number, client in enumerate(clients):
                client.send(send_frame("TopicA", f"{turn}-{number}".encode(), opaque=turn * 100 + number))
            for number, client in enumerate(clients):
                answer = client.answer()
                assert (answer.code, answer.opaque) == (0, turn * 100 + number)
        for other in others:
            other.__exit__(None, None, None)
    assert len({body for body, _ in stored(kit)}) == 5 * 61


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize(
    "change",
    [
        {"b": "Nowhere"}, {"e": "9"}, {"e": "x"}, {"f": "4"}, {"f": ""}, {"h": "1.5"}, {"g": "9223372036854775808"},
        {"i": "TRAN_MSG\x01true\x02"}, {"i": "DELAY\x013\x02"}, {"i": "TIMER_DELAY_MS\x011\x02"},
        {"i": "INNER_NUM\x011\x02"}, {"i": "a\x01b\0c\x02"}, {"i": "k\x01" + "v" * 33000},
    ],
    ids=lambda change: str(change)[:30],
)  # fmt: skip
def test_everything_unusual_goes_to_control_unchanged(
    kit: ReaderKit, change: dict[str, str], serialise: SerializeType
) -> None:
    frame = send_frame("TopicA", b"body", serialise=serialise, **change)
    with connected(kit) as client:
        client.send(frame)
        taken = kit.take()
        record, payload = taken
        assert (record.type, record.role, record.frame_length) == (
            lib.RMQ_INBOX_COLD_FRAME,
            lib.RMQ_ROLE_READ,
            len(frame),
        )
        assert payload == frame[: len(frame) - 4]
        assert struct.unpack(">i", payload[:4])[0] == len(frame) - 4
        kit.verdict(record, lib.RMQ_VERDICT_DROP)
    assert kit.marks.append_offset == 0


def test_ipv6_clients(make_kit: MakeKit) -> None:
    kit = make_kit()
    kit.listeners[1].close()
    kit.listeners[1] = socket.create_server(("::1", 0), family=socket.AF_INET6)
    kit.start("write")
    kit.start("read")
    client = Client(("::1", kit.listeners[1].getsockname()[1]))
    assert client.ask(send_frame("TopicA", b"six", f="48")).code == 0
    client.close()
    with connected(kit) as four:
        assert four.ask(send_frame("TopicA", b"four", f="48")).code == 0
    six, four_record = kit.records()
    assert (six[2].sys_flag, four_record[2].sys_flag) == (0x10, 0)  # the client's word on hosts does not count
    assert six[1][six[2].born_host_at : six[2].born_host_at + 16] == bytes(15) + b"\x01"


def test_clean_stop_under_load(kit: ReaderKit) -> None:
    """What is answered is answered with success; who connects again waits in the socket for the next broker."""
    with connected(kit) as client:
        assert client.ask(send_frame("TopicA", b"before")).code == 0
        kit.marks.stop_requested = 1
        while "read" not in kit.stopped:  # the client never gives up
            if select.select([], [client.socket], [], 0.01)[1]:  # who has stopped takes nothing any more
                client.send(send_frame("TopicA", b"after"))
        while not client.is_quiet():
            assert client.answer().code == 0
        with connected(kit):
            waiting, _ = kit.listeners[0].accept()
            waiting.close()
