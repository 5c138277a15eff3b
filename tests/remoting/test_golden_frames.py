"""Every frame that stock sent decodes; encoded again it decodes to the same command; headers and bodies
write back.
"""

import json
from collections.abc import Iterator

import pytest

from ringmq.fastjson.reader import read_json
from ringmq.remoting import admin_bodies, heartbeat, json_body, register_body
from ringmq.remoting.codes import RequestCode, SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.message import decode_messages, encode_message
from ringmq.remoting.request_headers import SHORT_SEND_CODES, decode_request_header, encode_short_send_header
from ringmq.remoting.response_headers import RESPONSE_HEADERS
from ringmq.remoting.route import ClusterInfo, TopicRouteData
from tests.remoting.replay import differences
from tests.remoting.scenes import SCENES, WIRE, Exchange, exchanges, load_events

ALL = [(kind, scene.name) for scene in SCENES for kind in scene.kinds]
IGNORED_EXT = {"bname", "lo", "ReqT"}
"""Fields of the RPC base header, which no server here reads."""


def frames() -> Iterator[bytes]:
    for kind, name in ALL:
        yield from (event.frame for event in load_events(kind, name) if event.kind == "frame")


def all_exchanges() -> Iterator[Exchange]:
    for kind, name in ALL:
        yield from exchanges(kind, name)


def test_the_table_lists_every_recorded_scene() -> None:
    recorded = {(path.parent.name, path.name.removesuffix(".jsonl.gz")) for path in WIRE.glob("*/*.jsonl.gz")}
    assert recorded == set(ALL)


def test_frames_decode_and_decode_again_to_the_same() -> None:
    count = 0
    for frame in frames():
        command = decode_frame(frame)
        assert decode_frame(encode_frame(command)) == command
        count += 1
    assert count > 1900


def test_binary_headers_are_rebuilt_to_the_byte() -> None:
    binary = [frame for frame in frames() if frame[4] == SerializeType.ROCKETMQ]
    assert len(binary) > 800
    different = [frame for frame in binary if encode_frame(decode_frame(frame)) != frame]
    assert len(different) == 2, "only the two frames with an empty ext value, which reads as absent"


def test_json_headers_keep_every_value_of_stock() -> None:
    for frame in frames():
        if frame[4] != SerializeType.JSON:
            continue
        header_length = int.from_bytes(frame[5:8], "big")
        again = encode_frame(decode_frame(frame))
        again_length = int.from_bytes(again[5:8], "big")
        stock = json.loads(frame[8 : 8 + header_length])
        assert {"extFields": {}} | json.loads(again[8 : 8 + again_length]) == {"extFields": {}} | stock
        assert again[8 + again_length :] == frame[8 + header_length :]


def test_one_stream_of_all_frames_cut_anywhere() -> None:
    expected = [decode_frame(frame) for frame in frames()]
    stream = b"".join(frames())
    for step in (1 << 20, 4093, 61):
        decoder = FrameDecoder()
        got: list[RemotingCommand] = []
        for at in range(0, len(stream), step):
            got += decoder.feed(stream[at : at + step])
        assert got == expected
        assert decoder.buffered_bytes == 0


def test_request_headers_keep_every_field() -> None:
    incomplete = []
    for exchange in all_exchanges():
        request = exchange.request
        try:
            header = decode_request_header(request)
        except ValueError:
            raise
        except Exception as error:
            incomplete.append((exchange.mark, str(error)))
            continue
        if header is None:
            assert set(request.ext_fields) <= IGNORED_EXT
            continue
        encoded = encode_short_send_header(header) if request.code in SHORT_SEND_CODES else header.encode()
        assert encoded == {k: v for k, v in request.ext_fields.items() if k not in IGNORED_EXT or k in encoded}
    assert {mark for mark, _ in incomplete} == {
        "send without extFields",
        "pull with a required field missing",
    }


def test_response_headers_of_success_keep_every_field() -> None:
    seen = set()
    for exchange in all_exchanges():
        answer = exchange.answer
        if answer is None or not answer.ext_fields or answer.code not in (0, 19, 20, 21):
            continue
        header = RESPONSE_HEADERS[exchange.request.code].decode(answer.ext_fields)
        assert header.encode() == answer.ext_fields
        seen.add(exchange.request.code)
    assert len(seen) >= 15


def test_message_bodies_write_back_to_the_byte() -> None:
    count = 0
    for exchange in all_exchanges():
        body = exchange.answer.body if exchange.answer else b""
        if body[4:7] != b"\xda\xa3\x20":
            continue
        messages = decode_messages(body, check_crc=True)
        count += len(messages)
        assert b"".join(encode_message(message) for message in messages) == body
    assert count == 75


def rewrite(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    """(our writing, stock's) of the bodies of one exchange that have a typed form."""
    request, answer = exchange.request, exchange.answer
    pairs = []
    match request.code:
        case RequestCode.HEART_BEAT:
            pairs.append((heartbeat.HeartbeatData.decode(request.body).encode(), request.body))
        case RequestCode.REGISTER_BROKER:
            table = register_body.decode_register_body(request.body)
            pairs.append((register_body.encode_register_body(table), request.body))
        case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
            pairs.append((heartbeat.LockBatch.decode(request.body).encode(), request.body))
        case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            group = SubscriptionGroupConfig.from_json(json_body.read_object(request.body, "group"))
            pairs.append((json_body.write_body(group.to_json()), request.body))
    if answer is None or answer.code != 0 or not answer.body:
        return pairs
    body = answer.body
    writers = {
        RequestCode.LOCK_BATCH_MQ: lambda: heartbeat.encode_locked(heartbeat.decode_locked(body)),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda: heartbeat.encode_consumer_ids(
            heartbeat.decode_consumer_ids(body)
        ),
        RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda: TopicRouteData.decode(body).encode(standard_json=b'{"0":' in body),
        RequestCode.GET_BROKER_CLUSTER_INFO: lambda: ClusterInfo.decode(body).encode(),
        RequestCode.GET_TOPIC_STATS_INFO: lambda: admin_bodies.TopicStats.decode(body).encode(),
        RequestCode.GET_CONSUME_STATS: lambda: admin_bodies.ConsumeStats.decode(body).encode(),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda: admin_bodies.encode_queue_offsets(
            admin_bodies.decode_queue_offsets(body)
        ),
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda: admin_bodies.encode_kv_table(admin_bodies.decode_kv_table(body)),
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda: admin_bodies.encode_topic_list(
            admin_bodies.decode_topic_list(body)
        ),
        RequestCode.GET_TOPIC_CONFIG: lambda: json_body.write_body(
            TopicConfig.from_json(json_body.read_object(body, "topic")).to_json()
        ),
    }
    writer = writers.get(RequestCode(request.code))
    if writer is not None:
        pairs.append((writer(), body))
    return pairs


def test_bodies_write_back_as_stock_wrote_them() -> None:
    """To the byte, except sets, whose order is Java's hash order."""
    codes = set()
    for exchange in all_exchanges():
        for ours, stock in rewrite(exchange):
            codes.add(exchange.request.code)
            assert ours == stock or len(ours) == len(stock)
            assert unordered(read_json(ours.decode())) == unordered(read_json(stock.decode()))
    assert len(codes) == 14


def unordered(value: object) -> object:
    if isinstance(value, dict):
        return {key: unordered(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return sorted((unordered(entry) for entry in value), key=lambda entry: json.dumps(entry, sort_keys=True))
    return value


def test_registrations_survive_the_compressed_form() -> None:
    bodies = [e.request for e in all_exchanges() if e.request.code == RequestCode.REGISTER_BROKER]
    assert bodies
    for request in bodies:
        table = register_body.decode_register_body(request.body)
        packed = register_body.encode_compressed_body(table)
        again = register_body.decode_register_body(packed, compressed=True)
        assert again.topics == table.topics
        assert again.data_version == table.data_version
        assert register_body.body_crc32(request.body) == int(request.ext_fields["bodyCrc32"])


def test_stock_agrees_with_itself_and_the_comparison_sees_faults() -> None:
    for exchange in all_exchanges():
        assert differences(exchange, exchange.answer) == []
    send = next(e for e in exchanges("json", "02-producer-send") if e.request.code == 310 and e.answer)
    assert send.answer is not None
    broken = decode_frame(encode_frame(send.answer))
    del broken.ext_fields["queueOffset"]
    broken.ext_fields["transactionId"] = "X"
    broken.code = 1
    assert len(differences(send, broken)) == 3


@pytest.mark.parametrize("kind", ["json", "rocketmq"])
def test_oneway_requests_have_no_answer(kind: str) -> None:
    oneway = [e for e in exchanges(kind, "04-push-consumer") if e.request.is_oneway]
    assert oneway
    assert all(e.answer is None for e in oneway)
