"""Requests handed on to clients (307, 309): the answer comes back as it came, or the reason why none did."""

from typing import Any

from ringmq.broker.requests.request import Push, Release, Reply
from ringmq.broker.tables.forward import CALLS_MAX, CLIENT_CALLS_MAX
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message_id import encode_offset_id
from tests.broker.fakes import START_MS, Harness, make_harness, peer

EXT = {"consumerGroup": "G", "clientId": "c1", "x": "kept"}


def waiting_harness(**member: Any) -> tuple[Harness, Push]:
    harness = make_harness()
    harness.join("G", {"T": "*"}, peer(1), "c1", **member)
    assert harness.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, EXT, connection=peer(2)) is None
    assert [push.connection for push in harness.pushed] == [peer(1)]
    return harness, harness.pushed[0]


def answer_of(push: Push, code: int = 5) -> RemotingCommand:
    return RemotingCommand.response_to(push.command, code, "fine", {"k": "v"}, b"{unparsed")


def test_code_ext_and_body_go_back_unparsed() -> None:
    harness, push = waiting_harness()
    assert push.command.code == 307
    assert push.command.ext_fields == EXT
    effects = harness.effects(answer_of(push), peer(1))
    assert isinstance(effects[0], Reply)
    assert isinstance(effects[1], Release)
    reply = effects[0]
    assert (reply.connection, reply.pending, reply.command.opaque) == (peer(2), 7, 3)
    assert (reply.command.code, reply.command.ext_fields, reply.command.body) == (5, {"k": "v"}, b"{unparsed")


def test_only_the_client_that_was_asked_can_answer() -> None:
    harness, push = waiting_harness()
    assert [type(effect) for effect in harness.effects(answer_of(push), peer(9))] == [Release]
    assert len(harness.broker.forwards) == 1


def test_no_answer_within_10_s_is_207() -> None:
    harness, push = waiting_harness()
    assert harness.broker.on_tick(START_MS + 9_999) == []
    (reply,) = harness.broker.on_tick(START_MS + 10_000)
    assert isinstance(reply, Reply)
    assert reply.command.code == 207
    assert [type(effect) for effect in harness.effects(answer_of(push), peer(1))] == [Release], "too late"


def test_a_client_that_goes_away_is_1() -> None:
    harness, _ = waiting_harness()
    harness.broker.on_close(peer(1))
    replies = [effect for effect in harness.broker.outbox.take() if isinstance(effect, Reply)]
    assert [reply.command.code for reply in replies] == [1]


def test_an_asker_that_goes_away_is_forgotten() -> None:
    harness, _ = waiting_harness()
    harness.broker.on_close(peer(2))
    assert len(harness.broker.forwards) == 0


def test_clients_that_cannot_be_asked() -> None:
    harness = make_harness()
    assert "not online" in harness.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, EXT).remark
    harness.join("G", {}, peer(1), "c1")
    group = harness.broker.consumers.get("G")
    assert group is not None
    group.members[peer(1)].version = 61
    assert "too low" in harness.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, EXT).remark


def test_309_brings_the_stored_message() -> None:
    harness = make_harness()
    harness.make_topic("T")
    harness.join("G", {"T": "*"}, peer(1), "c1")
    harness.store.messages[0x40] = b"stored"
    ext = EXT | {"topic": "T", "msgId": encode_offset_id("127.0.0.2", 30911, 0x40)}
    assert harness.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, connection=peer(2)) is None
    command = harness.pushed[0].command
    assert command.body == b"stored"
    added = {"brokerName": "wire-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    assert command.ext_fields == ext | added
    assert harness.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext | {"msgId": "nonsense"}).code == 1
    harness.store.messages.clear()
    assert harness.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext).code == 1


def test_unknown_codes_and_lonely_responses() -> None:
    harness = make_harness()
    answer = harness.ask(9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    lonely = RemotingCommand.response_to(RemotingCommand.request(307, opaque=99), 0)
    assert [type(effect) for effect in harness.effects(lonely, peer(1))] == [Release]


def called(harness: Harness, number: int = 1) -> list[RemotingCommand | str]:
    """What the broker is told about a request of its own."""
    told = list[RemotingCommand | str]()
    command = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    harness.broker.forwards.call(harness.broker.outbox, peer(number), "c1", command, START_MS, told.append)
    return told


def test_a_call_ends_with_the_answer_of_its_client() -> None:
    harness = make_harness()
    told = called(harness)
    (push,) = harness.broker.outbox.take()
    assert isinstance(push, Push) and push.connection == peer(1) and harness.broker.forwards.calls == 1
    assert [type(effect) for effect in harness.effects(answer_of(push), peer(9))] == [Release] and not told
    assert [type(effect) for effect in harness.effects(answer_of(push), peer(1))] == [Release]
    assert [answer.code for answer in told if isinstance(answer, RemotingCommand)] == [5]
    assert harness.broker.forwards.calls == 0 and harness.broker.on_tick(START_MS + 10_000) == []
    assert len(told) == 1


def test_a_call_without_an_answer_has_a_reason() -> None:
    harness = make_harness()
    late, gone = called(harness, 1), called(harness, 2)
    assert harness.broker.forwards.connections() == {peer(1), peer(2)}
    harness.broker.on_close(peer(2))
    assert (late, gone) == ([], ["<c1> went away before it answered"])
    harness.broker.on_tick(START_MS + 10_000)
    assert late == ["<c1> did not answer within 10000 ms"]
    assert len(harness.broker.forwards.connections()) == 0


def test_calls_leave_room_for_other_clients_and_for_operators() -> None:
    harness = make_harness()
    forwards = harness.broker.forwards
    first = [called(harness) for _ in range(CLIENT_CALLS_MAX + 1)]
    assert first[-1] == [f"<c1> has {CLIENT_CALLS_MAX} requests without an answer"] and not any(first[:-1])
    for number in range(CALLS_MAX - CLIENT_CALLS_MAX):
        assert not called(harness, 2 + number % 8)
    assert called(harness, 20) == [f"{CALLS_MAX} requests wait for answers of clients"]
    assert not forwards.is_full and len(forwards) == 0
