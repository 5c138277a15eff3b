"""Send-backs at a whole broker: each is answered when its copy is stored, as stock stores it."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.json_body import write_body
from ringmq.remoting.message import MessageExt
from ringmq.remoting.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from ringmq.services.send_back.gone_messages import GONE_COUNTER, TEXT
from tests.broker.test_processes import SMALL
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import RawClient
from tests.remoting.scenes import BOTH, exchanges
from tests.services.late_start import ask_started
from tests.staging import TOPIC_FIELDS, bodies_of, make_topic, messages_of
from tests.store.test_torn_tail import encode
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {**SMALL, "messageDelayLevel": "1s 1s 1s 1s 1s"}
LEVELS = 5
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
BODY_AT = 88
"""Place of the body in a record with hosts of IPv4."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("back") / "store", SETTINGS) as broker:
        make_topic(broker.address, "T", 2)
        yield broker
        assert broker.stop() == 0


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


def make_group(client: RawClient, group: str, queues: int = 1, times: int = 16) -> None:
    config = SubscriptionGroupConfig(group, retry_queue_nums=queues, retry_max_times=times)
    body = write_body(config.to_json())
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


def back(client: RawClient, group: str, offset: int, level: int = 0, **more: object) -> RemotingCommand:
    return ask_started(
        client, BACK, {"offset": offset, "group": group, "delayLevel": level, "originTopic": "T", **more}
    )


def sent(client: RawClient, body: bytes, pairs: dict[str, str] | None = None) -> int:
    """Send a message; its position in the log."""
    answer = client.send("T", body, pairs=pairs)
    assert answer.code == 0
    return int(answer.ext_fields["msgId"][-16:], 16)


def stored(broker: RunningBroker, topic: str, count: int, queues: int) -> list[MessageExt]:
    """The messages of a topic, once there are so many: an answer may come before dispatch has them in their queue."""
    wait_until(lambda: len(messages_of(broker.address, topic, queues)) >= count, f"{topic} has {count} messages")
    found = messages_of(broker.address, topic, queues)
    assert len(found) == count
    return found


def retried(broker: RunningBroker, group: str, count: int = 1, queues: int = 1) -> list[MessageExt]:
    return stored(broker, retry_topic(group), count, queues)


def dead(broker: RunningBroker, group: str) -> MessageExt:
    """The only dead letter of the group."""
    return stored(broker, dlq_topic(group), 1, 1)[0]


def the_one(broker: RunningBroker, topic: str, is_it: Callable[[MessageExt], bool], queues: int = 2) -> MessageExt:
    def those() -> list[MessageExt]:
        return list(filter(is_it, messages_of(broker.address, topic, queues)))

    wait_until(lambda: bool(those()), f"{topic} has the message")
    (message,) = those()
    return message


def test_a_message_comes_again_until_its_group_gives_it_up(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_again", times=2)
    offset = sent(client, b"failed", {"KEYS": "k", "TAGS": "a"})
    original = the_one(broker, "T", lambda message: message.commit_log_offset == offset)
    for times in (1, 2):
        assert back(client, "G_again", offset).code == 0
        message = retried(broker, "G_again", times)[-1]
        assert message.body == b"failed" and message.reconsume_times == times
        pairs = message.properties
        assert (pairs["RETRY_TOPIC"], pairs["WAIT"], pairs["DELAY"]) == ("T", "false", str(2 + times))
        assert pairs["ORIGIN_MESSAGE_ID"] == original.offset_msg_id and pairs["KEYS"] == "k"
        assert (pairs["REAL_TOPIC"], pairs["REAL_QID"]) == (retry_topic("G_again"), "0")
        assert message.born_timestamp_ms == original.born_timestamp_ms
        offset = message.commit_log_offset
    assert back(client, "G_again", offset).code == 0
    letter = dead(broker, "G_again")
    assert letter.reconsume_times == 3 and letter.properties["DELAY"] == "0"
    assert letter.properties["RETRY_TOPIC"] == "T" and letter.properties["ORIGIN_MESSAGE_ID"] == original.offset_msg_id


@pytest.mark.parametrize(
    ("level", "limit", "version", "stored_level"),
    [(2, None, 485, "2"), (99, None, 485, str(LEVELS)), (-1, None, 485, "0"), (0, 0, 485, "0"), (0, 0, 120, "3")],
)
def test_levels_and_limits(
    broker: RunningBroker, client: RawClient, level: int, limit: int | None, version: int, stored_level: str
) -> None:
    group = f"G_level_{level}_{limit}_{version}".replace("-", "m")
    make_group(client, group)
    more = {} if limit is None else {"maxReconsumeTimes": str(limit)}
    fields = {"offset": str(sent(client, b"x")), "group": group, "delayLevel": str(level), **more}
    request = RemotingCommand.request(BACK, fields, opaque=900)
    request.version = version
    client.send_bytes(encode_frame(request))
    answer = client.receive()
    assert answer is not None and answer.code == 0
    message = dead(broker, group) if stored_level == "0" else retried(broker, group)[0]
    assert message.properties["DELAY"] == stored_level


def test_batches_make_the_copies_of_single_requests(broker: RunningBroker, client: RawClient) -> None:
    """Python decodes a request with a letter beyond ASCII, C its twin. Both become rows of the same batches."""
    make_group(client, "G_twin", queues=2, times=3)
    offsets = [sent(client, b"%d" % number, {"KEYS": f"k{number}", "DELAY": "0"}) for number in range(6)]
    asked = [(offset, level) for offset in offsets for level in (0, 1, 4, -1)]
    for note in ("n\xf6te", "note"):
        for opaque, (offset, level) in enumerate(asked, 7000):
            fields = {"offset": str(offset), "group": "G_twin", "delayLevel": str(level), "originMsgId": note}
            client.send_bytes(encode_frame(RemotingCommand.request(BACK, fields, opaque=opaque)))
        answers = [client.receive() for _ in asked]
        assert [(answer.code, answer.remark) for answer in answers if answer is not None] == [(0, None)] * len(asked)
    for topic, queues, count in ((retry_topic("G_twin"), 2, 36), (dlq_topic("G_twin"), 1, 12)):
        found = Counter(
            (
                bytes(message.body), tuple(pair for pair in message.properties.items() if pair[0] != "REAL_QID"),
                message.reconsume_times, message.born_timestamp_ms, message.born_host, message.sys_flag, message.flag,
            )
            for message in stored(broker, topic, count, queues)
        )  # fmt: skip
        assert all(times % 2 == 0 for times in found.values()), "each copy has its twin"


def test_a_group_is_made_with_its_topics(broker: RunningBroker, client: RawClient) -> None:
    assert back(client, "G_fresh", sent(client, b"x")).code == 0
    answer = client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G_fresh"})
    assert answer.code == 0
    assert retried(broker, "G_fresh")


def test_copies_go_to_all_retry_queues(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_many", queues=3)
    offset = sent(client, b"x")
    for _ in range(40):
        assert back(client, "G_many", offset, level=1).code == 0
    assert {message.queue_id for message in retried(broker, "G_many", 40, 3)} == {0, 1, 2}


def test_a_group_without_retry_queues_stores_nothing(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_none", queues=0)
    assert back(client, "G_none", sent(client, b"x")).code == 0
    assert client.pull(retry_topic("G_none")).code == ResponseCode.TOPIC_NOT_EXIST


def test_positions_that_hold_no_message(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_where")
    offset = sent(client, b"y" * 200)
    assert client.send("T", b"later", pairs={"DELAY": "5"}).code == 0
    waiting = the_one(broker, SCHEDULE_TOPIC, lambda message: bytes(message.body) == b"later", LEVELS)
    for wrong in (offset + 1, offset + 100, 1 << 40, -1, waiting.commit_log_offset):
        for group in ("G_where", "G_nowhere"):
            answer = back(client, group, wrong)
            assert (answer.code, answer.remark) == (1, f"look message by offset failed, {wrong}")
    assert client.pull(retry_topic("G_nowhere")).code == ResponseCode.TOPIC_NOT_EXIST, "a refused request makes nothing"
    assert back(client, "G_where", offset).code == 0, "the neighbour is good"


def made_up_record(client: RawClient) -> int:
    """The position of a record within a client's own message. Its checksum is not that of its body."""
    size, before = 0, sent(client, record_at(0))
    while True:
        guess = before + size
        if (at := sent(client, record_at(guess + BODY_AT))) == guess:
            return guess + BODY_AT
        size, before = at - before, at


def record_at(position: int) -> bytes:
    return encode(0, position, b"messages of others", b"", b"T").replace(b"others", b"OTHERS")


@pytest.mark.parametrize("note", ["n\xf6te", "note"], ids=["python", "c"])
def test_a_record_that_a_client_has_made_up_is_not_copied(broker: RunningBroker, client: RawClient, note: str) -> None:
    """Its body would be the messages of others between two of the client's own, whatever their topics."""
    group = f"G_made_up_{len(note.encode())}"
    make_group(client, group)
    answer = back(client, group, made_up_record(client), originMsgId=note)
    assert (answer.code, answer.remark) == (1, "MESSAGE_ILLEGAL: the record cannot be copied (DAMAGED)")
    assert back(client, group, sent(client, b"sound"), originMsgId=note).code == 0
    assert [bytes(message.body) for message in retried(broker, group)] == [b"sound"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "offset"), ({"offset": "x", "group": "G", "delayLevel": "0"}, "offset"),
        ({"offset": "0", "delayLevel": "0"}, "group"),
        ({"offset": "0", "group": "G", "delayLevel": "2147483648"}, "delayLevel"),
    ],
)  # fmt: skip
def test_malformed_fields(client: RawClient, fields: dict[str, str], field: str) -> None:
    answer = client.ask(BACK, fields)
    assert answer.code == 1 and field in (answer.remark or "")


def test_topics_without_write_permission(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_perm")
    offset = sent(client, b"x")
    for topic in (retry_topic("G_perm"), dlq_topic("G_perm")):
        fields = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1, **TOPIC_FIELDS, "perm": 4}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    answer = back(client, "G_perm", offset)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == f"the topic[{retry_topic('G_perm')}] sending message is forbidden"
    fields = {"topic": retry_topic("G_perm"), "readQueueNums": 1, "writeQueueNums": 1, **TOPIC_FIELDS, "perm": 6}
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    assert back(client, "G_perm", offset, level=-1).code == 0, "stock looks at no permission of a dead letter topic"


def test_a_deleted_retry_topic_is_made_again(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_gone")
    offset = sent(client, b"x")
    assert back(client, "G_gone", offset, level=1).code == 0
    retried(broker, "G_gone")
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": retry_topic("G_gone")}).code == 0
    wait_until(lambda: back(client, "G_gone", offset, level=1).code == 0, "the deletion is over")
    assert retried(broker, "G_gone")


def test_a_message_that_retention_took(tmp_path: Path) -> None:
    settings = {
        **SETTINGS, "fileReservedTime": 1, "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": 100,
    }  # fmt: skip
    with RunningBroker(tmp_path / "store", settings) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        make_group(client, "G_old")
        offset, files = sent(client, b"old"), tmp_path / "store" / "commitlog"
        assert back(client, "G_old", offset, level=-1).code == 0
        while len(list(files.iterdir())) < 4:
            last = sent(client, b"x" * 10_000)
        os.utime(min(files.iterdir()), (0, 0))
        wait_until(lambda: back(client, "G_old", offset, level=-1).code != 0, "retention takes the file")
        answer = back(client, "G_old", offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
        assert back(client, "G_old", last, level=-1).code == 0, "later ones are there"
        plane = Plane.open(plane_name(broker.store))
        assert plane.role(lib.RMQ_ROLE_SERVICES).counters[GONE_COUNTER] == 2, "both are counted"
        assert broker.log_tail(1 << 20).count(TEXT) == 1, "and told once"
        assert broker.stop() == 0


def test_a_rule_that_is_not_there_yet_is_no_final_answer(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_rule")
    offset = sent(client, b"early")
    assert back(client, "G_rule", offset, level=-1).code == 0
    plane = Plane.open(plane_name(broker.store))
    rules = plane.admission_rules()
    os.kill(broker.worker_pids()["services"], signal.SIGKILL)  # the next one has seen no rule
    plane.admission_publish(())
    answer = back(client, "G_rule", offset, level=1)
    plane.admission_publish(rules)
    assert answer.code == ResponseCode.SYSTEM_BUSY and "the rule for delay levels is not there" in (answer.remark or "")
    assert back(client, "G_rule", offset, level=1).code == 0
    assert retried(broker, "G_rule")[0].body == b"early"


def test_kills_of_the_service_lose_no_answered_message_and_no_answer(tmp_path: Path) -> None:
    """A request without a stored copy is answered, too: its read worker sees that the service has died."""
    with RunningBroker(tmp_path / "store", SETTINGS) as broker:
        make_topic(broker.address, "T", 1)
        with RawClient(broker.address) as client:

            def is_stored(offset: int) -> bool:
                return back(client, "G_kill", offset, level=-1).code == 0

            make_group(client, "G_kill")
            assert is_stored(sent(client, b"first"))
            answered = set()
            for kill in range(3):
                bodies = [b"m%d-%d" % (kill, number) for number in range(60)]
                offsets = [sent(client, body) for body in bodies]
                for opaque, offset in enumerate(offsets, 100 * kill):
                    note = "note" if opaque % 2 else "n\xf6te"  # read by C, by Python
                    fields = {"offset": str(offset), "group": "G_kill", "delayLevel": "-1", "originMsgId": note}
                    client.send_bytes(encode_frame(RemotingCommand.request(BACK, fields, opaque=opaque)))
                    if opaque % 100 == 30:
                        os.kill(broker.worker_pids()["services"], signal.SIGKILL)
                answers = [client.receive() for _ in offsets]
                codes = {answer.opaque: answer.code for answer in answers if answer is not None}
                assert set(codes) == set(range(100 * kill, 100 * kill + 60)), "each has one answer"
                assert set(codes.values()) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
                answered |= {bodies[opaque % 100] for opaque, code in codes.items() if code == 0}
                wait_until(partial(is_stored, offsets[0]), "the service is back")
        assert answered
        topic = dlq_topic("G_kill")
        wait_until(lambda: answered <= set(bodies_of(broker.address, topic, 1)), "every answered one is stored")
        assert broker.stop() == 0


@pytest.mark.parametrize("kind", BOTH)
def test_the_recorded_scene_gets_stocks_answers(tmp_path: Path, kind: str) -> None:
    """Positions in the log are our own: those of the messages that the recorded requests name."""
    with RunningBroker(tmp_path / "store", {**SMALL, "brokerName": "wire-a"}) as broker:
        make_topic(broker.address, "WireBack", 2)
        with RawClient(broker.address) as client:
            for exchange in exchanges(kind, "08-send-back"):
                request, stock = exchange.request, exchange.answer
                if exchange.target != "b" or request.code not in (RequestCode.SEND_MESSAGE_V2, BACK) or stock is None:
                    continue
                if request.code == BACK:
                    name_own_position(broker, request.ext_fields)
                client.send_bytes(encode_frame(request))
                answer = client.receive()
                assert answer is not None and (answer.code, answer.remark) == (stock.code, stock.remark)
                assert answer.ext_fields.keys() == stock.ext_fields.keys()
        letter = dead(broker, "WG_BACK")
        assert letter.reconsume_times == 2 and letter.properties["DELAY"] == "0"


def name_own_position(broker: RunningBroker, fields: dict[str, str]) -> None:
    is_first = fields["delayLevel"] == "1"
    topic = "WireBack" if is_first else retry_topic("WG_BACK")
    message = the_one(broker, topic, lambda message: message.properties["UNIQ_KEY"] == fields["originMsgId"])
    fields["offset"] = str(message.commit_log_offset)


def send_retry(client: RawClient, group: str, times: int, **more: str) -> RemotingCommand:
    """The send of a client whose send-back has failed."""
    pairs = {"DELAY": str(3 + times), "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "id", "UNIQ_KEY": "u" * 32}
    fields = send_fields(retry_topic(group), 0, pairs) | {"reconsumeTimes": str(times), **more}
    return client.ask(RequestCode.SEND_MESSAGE_V2, shortened(fields), b"failed")


def test_a_client_that_sends_retries_itself(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_self", times=2)
    assert send_retry(client, "G_self", 2).code == 0
    (message,) = retried(broker, "G_self")
    assert (message.reconsume_times, message.properties["DELAY"]) == (2, "5")
    assert send_retry(client, "G_self", 3).code == 0
    assert send_retry(client, "G_self", 3, maxReconsumeTimes="5").code == 0
    letter = dead(broker, "G_self")
    assert (letter.reconsume_times, letter.properties["DELAY"], bytes(letter.body)) == (3, "-1", b"failed")
    assert "REAL_TOPIC" not in letter.properties and letter.properties["UNIQ_KEY"] == "u" * 32
    assert letter.properties["RETRY_TOPIC"] == "T"
    retried(broker, "G_self", 2)


def test_retries_of_an_ordered_group_are_dead_letters(broker: RunningBroker, client: RawClient) -> None:
    make_group(client, "G_ordered")
    queue = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
    body = write_body({"clientId": "c", "consumerGroup": "G_ordered", "mqSet": [queue], "onlyThisBroker": False})
    assert client.ask(RequestCode.LOCK_BATCH_MQ, {}, body).code == 0
    assert send_retry(client, "G_ordered", 1).code == 0
    assert dead(broker, "G_ordered").properties["DELAY"] == "-1"
    assert client.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body).code == 0
    assert send_retry(client, "G_ordered", 1).code == 0
    retried(broker, "G_ordered")
    dead(broker, "G_ordered")
