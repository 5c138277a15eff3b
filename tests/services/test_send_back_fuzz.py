"""Random requests 36 at a whole broker: each gets one answer, and each answered 0 has one copy, wherever it belongs."""

import random
from collections import Counter
from pathlib import Path

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, SerializeType, encode_frame
from ringmq.remoting.names import dlq_topic, retry_topic
from tests.broker.test_processes import SMALL
from tests.raw_client import RawClient
from tests.services.late_start import ask_started
from tests.staging import make_topic, messages_of
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {**SMALL, "messageDelayLevel": "1s 1s", "traceOn": False}
REQUESTS, AT_ONCE = 1500, 50
GROUPS = ("G1", "G2", "shop%G", "G-_|")
NAMES = (*GROUPS, "", " ", "G\x00", "é" * 10, "%RETRY%G1", "%DLQ%G1", "a" * 121, "a" * 122, "a" * 247, "a" * 300)
NUMBERS = ("0", "1", "-1", "2", "17", "2147483647", "-2147483648", "9223372036854775807", "1e3", "", " 1", "x")
TOPICS = ("T", "", "%RETRY%G1", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 300)
CODES = {
    ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
}  # fmt: skip


def requests(chance: random.Random, offsets: list[int]) -> list[dict[str, str]]:
    """Fields of requests. Half of them are well formed but for one field."""
    made = []
    for _ in range(REQUESTS):
        fields = {
            "offset": str(chance.choice(offsets)), "group": chance.choice(GROUPS),
            "delayLevel": chance.choice(("0", "1", "-1")), "originTopic": "T", "originMsgId": "id", "unitMode": "false",
            "maxReconsumeTimes": chance.choice(("16", "0", "-1")),
        }  # fmt: skip
        for _ in range(chance.choice((0, 0, 1, 1, 3))):
            name = chance.choice(list(fields))
            match name:
                case "group":
                    fields[name] = chance.choice(NAMES)
                case "originTopic" | "originMsgId":
                    fields[name] = chance.choice(TOPICS)
                case "offset":
                    near = str(chance.choice(offsets) + chance.randrange(-20, 20))
                    fields[name] = chance.choice((*NUMBERS, near))
                case "unitMode":
                    fields[name] = chance.choice(("true", "TRUE", "maybe", ""))
                case _:
                    fields[name] = chance.choice(NUMBERS)
            if chance.random() < 0.1:
                del fields[name]
        made.append(fields)
    return made


def answers(client: RawClient, chance: random.Random, asked: list[dict[str, str]]) -> list[RemotingCommand]:
    """Ask some at once, and return the answers in the order of the requests."""
    found: dict[int, RemotingCommand] = {}
    for start in range(0, len(asked), AT_ONCE):
        part = asked[start : start + AT_ONCE]
        for opaque, fields in enumerate(part, start):
            request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, fields, opaque=opaque)
            request.version = chance.choice((0, 100, 485, 32767))
            request.serialize_type = chance.choice((SerializeType.JSON, SerializeType.ROCKETMQ))
            client.send_bytes(encode_frame(request))
        for _ in part:
            answer = client.receive()
            assert answer is not None and answer.opaque not in found, "one answer for each request"
            found[answer.opaque] = answer
    return [found[opaque] for opaque in range(len(asked))]


@pytest.mark.parametrize("seed", range(2))
def test_each_request_has_one_answer_and_at_most_one_copy(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        make_topic(broker.address, "T", 1)
        offsets = []
        for number in range(20):
            answer = client.send("T", b"%d" % number * chance.randrange(1, 50))
            offsets.append(int(answer.ext_fields["msgId"][-16:], 16))
        assert ask_started(client, RequestCode.STAGED_WRITES, {"operation": "describe"}).code == 0
        asked = requests(chance, offsets)
        got = answers(client, chance, asked)
        assert {answer.code for answer in got} <= CODES
        assert all(answer.remark for answer in got if answer.code), "a refusal says why"
        stored = Counter(fields["group"] for fields, answer in zip(asked, got, strict=True) if answer.code == 0)
        assert set(GROUPS) <= set(stored) and sum(stored.values()) < REQUESTS

        def copies() -> Counter[str]:
            found = Counter[str]()
            for group in stored:
                for topic in (retry_topic(group), dlq_topic(group)):
                    found[group] += len(messages_of(broker.address, topic, 1))
            return found

        wait_until(lambda: copies() >= stored, "all that were answered 0 are stored")
        assert copies() == stored, "and nothing else"
        assert broker.stop() == 0
