"""Ends that C reads and ends that Python reads are answered alike and store alike: each case comes in both ways.

Python reads an end whose message id is not ASCII (native/src/services/plain_ends.h). Both go to write in C.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import SerializeType
from ringmq.remoting.message import MessageExt
from tests.broker.transaction_kit import COMMIT, ROLLBACK, Transaction, listed, queue_of
from tests.raw_client import RawClient
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 65_536,
    "transactionTimeOut": 3_600_000,
    "transactionOpMsgMaxSize": 40,
}
CASES = 200
PLAIN, OTHER = range(2)
MESSAGE_ID = ("0A", "\xe9")
Change = Callable[[Transaction], dict[str, object]]
CHANGES: tuple[Change, ...] = (
    lambda _: {"producerGroup": "Q"},
    lambda half: {"tranStateTableOffset": half.offset + 1},
    lambda half: {"commitLogOffset": half.position + 1},
    lambda _: {"tranStateTableOffset": 1 << 60},
    lambda _: {"commitLogOffset": -1},
)


@dataclass(frozen=True)
class Case:
    """Two equal half messages, and how both are ended."""

    halves: tuple[Transaction, Transaction]
    decision: int
    kind: SerializeType
    fields: tuple[dict[str, object], dict[str, object]]
    is_sound: bool
    times: int

    @property
    def is_committed(self) -> bool:
        return self.is_sound and self.decision == COMMIT


def cases(client: RawClient, dice: random.Random) -> list[Case]:
    found = []
    for number in range(CASES):
        pairs = dice.choice(({}, {}, {"KEYS": "k", "A": "b"}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}))
        body, topic = b"%d" % number + b"." * dice.choice((0, 0, 9000)), dice.choice(("T", "T", "T", "Gone"))
        first, second = (Transaction(client, body, topic, **pairs) for _ in range(2))
        decision, is_sound = dice.choice((COMMIT, COMMIT, ROLLBACK)), dice.random() < 0.8
        change = (lambda _: {}) if is_sound else dice.choice(CHANGES)
        fields = tuple(half.fields(decision) | change(half) | {"msgId": name}
                       for half, name in zip((first, second), MESSAGE_ID, strict=True))  # fmt: skip
        is_sound = is_sound and (topic == "T" or decision == ROLLBACK)
        times = dice.choice((1, 1, 2))
        found.append(Case((first, second), decision, dice.choice(list(SerializeType)), fields, is_sound, times))
    return found


def end_all(client: RawClient, found: list[Case], dice: random.Random) -> dict[tuple[int, int], list[object]]:
    """Send the ends of all cases, mixed, before the first answer. Returns code and remark of each, by case and way."""
    requests = [(number, way) for number, case in enumerate(found) for way in (PLAIN, OTHER) for _ in range(case.times)]
    dice.shuffle(requests)
    asked = {}
    for number, way in requests:
        case = found[number]
        asked[client.send_request(RequestCode.END_TRANSACTION, case.fields[way], kind=case.kind)] = number, way
    answers = defaultdict(list)
    for _ in requests:
        answer = client.receive()
        assert answer is not None
        answers[asked.pop(answer.opaque)].append((answer.code, answer.remark, answer.body, answer.ext_fields))
    return answers


def stored(message: MessageExt) -> tuple[object, ...]:
    own = {name: value for name, value in message.properties.items() if name not in ("UNIQ_KEY", "__transactionId__")}
    own = {name: value for name, value in own.items() if name not in ("MIN_OFFSET", "MAX_OFFSET")}
    return message.body, message.sys_flag, message.flag, own, message.reconsume_times, message.queue_id


def test_each_case_in_both_ways(tmp_path: Path) -> None:
    dice = random.Random(29)
    with RunningBroker(tmp_path / "store", SETTINGS) as broker, RawClient(broker.address) as client:
        for topic in ("T", "Gone"):
            make_topic(broker.address, topic, 1)
        found = cases(client, dice)
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == ResponseCode.SUCCESS
        answers = end_all(client, found, dice)
        for number, case in enumerate(found):
            plain, other = (sorted(answers[number, way], key=str) for way in (PLAIN, OTHER))
            assert plain == other, case
            assert all((code == ResponseCode.SUCCESS) == case.is_sound for code, *_ in plain), case
        wanted = sum(2 * case.is_committed for case in found)
        wait_until(lambda: len(queue_of(broker, "T")) >= wanted, "all commits are in their queue")
        by_half = {message.prepared_transaction_offset: message for message in queue_of(broker, "T")}
        assert len(by_half) == len(queue_of(broker, "T")) == wanted, "each is delivered once"
        for case in found:
            messages = [by_half.get(half.position) for half in case.halves]
            if case.is_committed:
                plain, other = messages
                assert plain is not None and other is not None and stored(plain) == stored(other)
            else:
                assert messages == [None, None]
        ended = sorted(half.offset for case in found if case.is_sound for half in case.halves)
        wait_until(lambda: listed(broker) == ended, "all op records are in their queue")
        plane = Plane.open(plane_name(broker.store))
        words = plane.role(lib.RMQ_ROLE_TRANSACTIONS).counters
        assert words[lib.RMQ_TRANSACTIONS_PLAIN] > 2 * CASES // 3, "C has sent those of both ways"
        assert words[lib.RMQ_TRANSACTIONS_COMMITTED] == wanted
        assert words[lib.RMQ_TRANSACTIONS_OPEN] == sum(2 * (not case.is_sound) for case in found)
        assert broker.stop() == 0
