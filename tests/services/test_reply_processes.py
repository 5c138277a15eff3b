"""Replies at a whole broker: stock's recorded scene, and each end of a reply."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from ringmq.broker.tables.forward import CLIENT_CALLS_MAX
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.worker import STATE_SERVING
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.message_id import decode_offset_id
from ringmq.remoting.properties import decode_properties
from ringmq.services.replies.counters import FAILED_COUNTER
from tests.broker.test_processes import SMALL
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import RawClient
from tests.remoting.replay import differences
from tests.remoting.scenes import BOTH, BROKER_NAME, CLUSTER_NAME, exchanges
from tests.services.late_start import ask_started
from tests.staging import messages_of
from tests.waiting import wait_dispatched, wait_until

pytestmark = pytest.mark.timeout(180)
TOPIC = f"{CLUSTER_NAME}_REPLY_TOPIC"
SETTINGS = {
    **SMALL, "mappedFileSizeCommitLog": 16 << 20, "brokerClusterName": CLUSTER_NAME, "brokerName": BROKER_NAME,
}  # fmt: skip
LARGEST = 4 << 20
ROLE = lib.RMQ_ROLE_SERVICES
PUSHED = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("replies") / "store", SETTINGS) as broker:
        with RawClient(broker.address) as client:
            assert ask_started(client, RequestCode.SEND_REPLY_MESSAGE, fields("nobody"), b"starts it").code == 1
        yield broker
        assert broker.stop() == 0


@pytest.fixture
def replier(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


@contextmanager
def requester(broker: RunningBroker, client_id: str) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        beat = HeartbeatData(client_id, producer_groups=["PG"]).encode()
        assert client.ask(RequestCode.HEART_BEAT, {}, beat).code == 0
        yield client


def fields(client_id: str | None, number: int = 0, **more: object) -> dict[str, object]:
    """The header of a reply."""
    pairs = {"MSG_TYPE": "reply", "CORRELATION_ID": str(number)}
    if client_id is not None:
        pairs["REPLY_TO_CLIENT"] = client_id
    return send_fields(TOPIC, 0, pairs) | more


def take(client: RawClient, code: int = 0) -> RemotingCommand:
    """The next reply that the requester gets. It answers with `code`."""
    pushed = client.receive()
    assert pushed is not None and pushed.code == PUSHED and not pushed.is_oneway
    client.send_bytes(encode_frame(RemotingCommand.response_to(pushed, code, "from the test")))
    return pushed


@contextmanager
def stored_again(client: RawClient) -> Iterator[None]:
    """Replies are stored behind the block, as the tests beside it expect."""
    try:
        yield
    finally:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"storeReplyMessageEnable=true").code == 0


def number_of(pushed: RemotingCommand) -> int:
    return int(decode_properties(pushed.ext_fields["properties"])["CORRELATION_ID"])


def stored(broker: RunningBroker) -> list[bytes]:
    wait_dispatched(broker.store)
    return [message.body for message in messages_of(broker.address, TOPIC, 1)]


def count_of(broker: RunningBroker, word: int) -> int:
    plane = Plane.open(plane_name(broker.store))  # what it maps goes with it
    return int(plane.role(ROLE).counters[word])


def answer_of(client: RawClient) -> RemotingCommand:
    answer = client.receive()
    assert answer is not None and answer.is_response
    return answer


@pytest.mark.parametrize("kind", BOTH)
def test_the_recorded_scene_is_answered_as_by_stock(broker: RunningBroker, kind: str) -> None:
    scene = exchanges(kind, "12-request-reply")
    beat, reply, pushed = (
        next(one for one in scene if one.request.code == code and one.conn == conn)
        for code, conn in (
            (RequestCode.HEART_BEAT, "b-2"), (RequestCode.SEND_REPLY_MESSAGE_V2, "b-3"), (PUSHED, "b-2"),
        )
    )  # fmt: skip
    with RawClient(broker.address) as asking, RawClient(broker.address) as replying:
        asking.send_bytes(encode_frame(beat.request))
        assert not differences(beat, asking.receive())
        replying.send_bytes(encode_frame(reply.request))
        got = take(asking, pushed.answer.code if pushed.answer else 1)
        assert got.body == pushed.request.body and got.ext_fields.keys() == pushed.request.ext_fields.keys()
        ours, stocks = (decode_properties(one.ext_fields["properties"]) for one in (got, pushed.request))
        assert ours.keys() == stocks.keys()
        of_the_run = {"bornHost", "storeHost", "storeTimestamp", "properties"}
        for name in pushed.request.ext_fields.keys() - of_the_run:
            assert got.ext_fields[name] == pushed.request.ext_fields[name]
        assert got.ext_fields["storeHost"] == broker.address
        answer = replying.receive()
    assert answer is not None and not differences(reply, answer)
    host, port, at = decode_offset_id(answer.ext_fields["msgId"])
    assert f"{host}:{port}" == broker.address
    wait_dispatched(broker.store)
    record = messages_of(broker.address, TOPIC, 1)[int(answer.ext_fields["queueOffset"])]
    assert (record.commit_log_offset, record.body) == (at, reply.request.body)
    del stocks["PUSH_REPLY_TIME"]
    assert record.properties == stocks, "as stock stores it: without the time of the push"


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_many_replies_are_under_way_at_a_time(broker: RunningBroker, replier: RawClient, code: int) -> None:
    before = len(stored(broker))
    with requester(broker, "many") as asking:
        header = fields("many", sysFlag=0x301) if code == RequestCode.SEND_REPLY_MESSAGE else None
        opaques = [
            replier.send_request(code, header or shortened(fields("many", number)), b"%d" % number)
            for number in range(CLIENT_CALLS_MAX)
        ]
        pushed = [take(asking) for _ in opaques]
        answers = [answer_of(replier) for _ in opaques]
    assert sorted(int(one.body) for one in pushed) == list(range(CLIENT_CALLS_MAX))
    if header is None:
        assert all(number_of(one) == int(one.body) for one in pushed)
    assert {one.opaque: one.code for one in answers} == dict.fromkeys(opaques, 0)
    offsets = sorted(int(one.ext_fields["queueOffset"]) for one in answers)
    assert offsets == list(range(before, before + CLIENT_CALLS_MAX))


def test_a_client_that_answers_itself_is_read_on(broker: RunningBroker) -> None:
    """It would answer no push if its own replies stopped its input."""
    with requester(broker, "itself") as client:
        code, sent = RequestCode.SEND_REPLY_MESSAGE, 100
        for number in range(sent):
            client.send_request(code, fields("itself", number), b"reply")
        pushes, codes = [], []
        while len(codes) < sent:
            frame = client.receive()
            assert frame is not None
            if frame.is_response:
                codes.append(frame.code)
            else:
                pushes.append(frame)
            if len(pushes) + len(codes) == sent:
                for pushed in pushes:
                    client.send_bytes(encode_frame(RemotingCommand.response_to(pushed, 0)))
    assert len(pushes) == CLIENT_CALLS_MAX
    assert codes.count(0) == CLIENT_CALLS_MAX and set(codes) <= {0, 1, 2}


def test_the_largest_reply_arrives(broker: RunningBroker, replier: RawClient) -> None:
    with requester(broker, "large") as asking:
        for _ in range(5):
            replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("large"), b"x" * LARGEST)
            assert len(take(asking).body) == LARGEST
            assert answer_of(replier).code == 0
    refused = replier.ask(RequestCode.SEND_REPLY_MESSAGE, fields("large"), b"x" * (LARGEST + 1))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL and str(LARGEST) in (refused.remark or "")


def test_replies_that_do_not_arrive_are_answered_1_and_stored(broker: RunningBroker, replier: RawClient) -> None:
    ends: Mapping[str | None, str] = {
        "nobody": "push reply message fail, channel of <nobody> not found.",
        None: "reply message properties[REPLY_TO_CLIENT] is null",
    }
    for client_id, remark in ends.items():
        before = len(stored(broker))
        answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE, fields(client_id), b"lost")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert answer.ext_fields["queueOffset"] == str(before) and stored(broker)[before:] == [b"lost"]
        assert {"msgId", "queueId", "MSG_REGION", "TRACE_ON"} < answer.ext_fields.keys()


def test_a_requester_that_fails_or_leaves_is_told_to_the_replier(broker: RunningBroker, replier: RawClient) -> None:
    failed = count_of(broker, FAILED_COUNTER)
    with requester(broker, "failing") as asking:
        replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("failing"), b"reply")
        take(asking, code=1)
        answer = answer_of(replier)
        assert answer.code == 1 and answer.remark == (
            "push reply message to failingfail. It has answered 1: from the test"
        )
        replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("failing"), b"reply")
        assert asking.receive() is not None
    answer = answer_of(replier)
    assert answer.code == 1 and (answer.remark or "").endswith("<failing> went away before it answered")
    assert count_of(broker, FAILED_COUNTER) == failed + 2


def test_replies_are_not_stored_where_the_broker_says_so(broker: RunningBroker, replier: RawClient) -> None:
    assert replier.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"storeReplyMessageEnable=false").code == 0
    with requester(broker, "unstored") as asking, stored_again(replier):

        def is_off() -> bool:
            replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("unstored"), b"reply")
            take(asking)
            answer = answer_of(replier)
            assert answer.code == 0
            return {name: answer.ext_fields[name] for name in ("msgId", "queueId", "queueOffset")} == {
                "msgId": "0", "queueId": "0", "queueOffset": "0",
            }  # fmt: skip

        wait_until(is_off, "the worker reads the property")
        before = len(stored(broker))
        assert is_off() and len(stored(broker)) == before
        lost = replier.ask(RequestCode.SEND_REPLY_MESSAGE, fields("nobody"), b"reply")
        assert lost.code == 1 and lost.ext_fields.keys() == {"MSG_REGION", "TRACE_ON"}


def test_a_oneway_reply_arrives_without_an_answer(broker: RunningBroker, replier: RawClient) -> None:
    with requester(broker, "oneway") as asking:
        ext = {name: str(value) for name, value in fields("oneway").items()}
        command = RemotingCommand.request(RequestCode.SEND_REPLY_MESSAGE, ext, b"reply", oneway=True)
        replier.send_bytes(encode_frame(command))
        assert take(asking).body == b"reply"
        following = replier.ask(RequestCode.SEND_REPLY_MESSAGE, fields("nobody"), b"x")
        assert following.code == 1, "the next answer is its own"


def test_a_replier_is_told_of_a_kill_and_the_next_reply_arrives(broker: RunningBroker, replier: RawClient) -> None:
    plane = Plane.open(plane_name(broker.store))
    with requester(broker, "survivor") as asking:
        for number in range(3):
            replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("survivor", number), b"reply")
            pushed = asking.receive()
            assert pushed is not None and number_of(pushed) == number
            generation = plane.role(ROLE).generation
            os.kill(plane.role(ROLE).pid, signal.SIGKILL)
            answer = answer_of(replier)
            assert answer.code == ResponseCode.SYSTEM_BUSY and "[OVERLOAD]" in (answer.remark or "")
            wait_until(
                lambda: plane.role(ROLE).generation != generation and plane.role(ROLE).state == STATE_SERVING,  # noqa: B023
                "it serves again",
            )
            asking.send_bytes(encode_frame(RemotingCommand.response_to(pushed, 0)))
        replier.send_request(RequestCode.SEND_REPLY_MESSAGE, fields("survivor", 9), b"reply")
        while number_of(take(asking)) != 9:
            pass
        assert answer_of(replier).code == 0
