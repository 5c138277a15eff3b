"""Bad requests at a whole broker: each is answered or refused, and none takes a message from another consumer."""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ringmq.loadtest.load.running import RunningBroker
from ringmq.pop.batch_acks import BITS_BYTES_MAX, GROUPS_MAX
from ringmq.pop.revival_words import Gauge
from ringmq.pop.role_words import Counter
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.pop_bodies import PopInflight
from tests.broker.test_processes import SMALL
from tests.pop.pop_client import PopClient, Taken, pop_fields
from tests.pop.pop_words import word
from tests.pop.test_pop_broker import found, send
from tests.raw_client import RawClient
from tests.speed import WALL, allowed
from tests.staging import make_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
HOUR_MS, MONTH_MS = 3_600_000, 30 * 24 * 3_600_000
OPEN_MAX = 4096
POP, ACK, CHANGE = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME
BATCH_ACK, NOTIFICATION = RequestCode.BATCH_ACK_MESSAGE, RequestCode.NOTIFICATION


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("bad") / "store", {**SMALL, "ringmqPopOpenMax": OPEN_MAX}) as broker:
        yield broker
        assert broker.stop() == 0


def ack_fields(taken: Taken, group: str, topic: str, **more: object) -> dict[str, object]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": taken.queue_id, "extraInfo": taken.receipt,
        "offset": taken.offset, "invisibleTime": 60_000, **more,
    }  # fmt: skip


def without(fields: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in names}


REFUSED_POPS: list[tuple[dict[str, object], int]] = [
    ({"bornTime": 1}, 210), ({"maxMsgNums": 33}, 29), ({"topic": "T_none"}, 17), ({"queueId": 1}, 29),
    ({"consumerGroup": "no group", "topic": "T_bad"}, 26), ({"exp": "a >", "expType": "SQL92"}, 23),
    ({"expType": "XPATH", "exp": "a"}, 23), ({"attemptId": "a" * 129}, 1), ({"invisibleTime": -1}, 29),
    ({"invisibleTime": MONTH_MS + 1}, 29), ({"maxMsgNums": "many"}, 1), ({"queueId": 2**31}, 1),
    ({"invisibleTime": 2**63}, 1), ({"exp": "x" * 8193}, 23), ({"topic": "T" * 256}, 17),
    ({"consumerGroup": "G" * 256}, 26), ({"consumerGroup": None}, 1), ({"topic": None}, 1), ({"initMode": None}, 1),
]  # fmt: skip
REFUSED_ACKS: list[tuple[dict[str, object], int]] = [
    ({"topic": "T_none"}, 17), ({"queueId": 1}, 13), ({"queueId": -1}, 13), ({"offset": 4}, 208),
    ({"offset": -1}, 208), ({"offset": 2**63 - 1}, 208), ({"extraInfo": "a b"}, 1),
    ({"extraInfo": "x 1 2 3 0 broker-a 0 0"}, 1),
    ({"extraInfo": "0 " * 513}, 1), ({"extraInfo": "9" * 60_000}, 1), ({"extraInfo": None}, 1),
    ({"offset": None}, 1), ({"queueId": None}, 1), ({"topic": None}, 1),
    ({"consumerGroup": None}, 1), ({"offset": "first"}, 1),
]  # fmt: skip
REFUSED_CHANGES: list[tuple[dict[str, object], int]] = [
    *REFUSED_ACKS, ({"offset": 3}, 208), ({"invisibleTime": -1}, 29), ({"invisibleTime": MONTH_MS + 1}, 29),
    ({"invisibleTime": None}, 1), ({"invisibleTime": 2**63}, 1),
]  # fmt: skip

NOTHING_THERE = {"hasMsg": "false", "pollingFull": "false"}
REFUSED_NOTIFICATIONS: list[tuple[dict[str, object], int]] = [
    ({"topic": "T_none"}, 17), ({"queueId": 1}, 29), ({"consumerGroup": "no group"}, 26),
    ({"queueId": 2**31}, 1), ({"queueId": "all"}, 1), ({"pollTime": 2**63}, 1), ({"bornTime": "now"}, 1),
    ({"topic": "T" * 256}, 17), ({"consumerGroup": "G" * 256}, 26), ({"consumerGroup": None}, 1), ({"topic": None}, 1),
    ({"queueId": None}, 1), ({"pollTime": None}, 1), ({"topic": "T" * 60_000}, 17),
    ({"attemptId": "x" * 129}, 1),
]  # fmt: skip
UNUSUAL_NOTIFICATIONS: list[dict[str, object]] = [
    {"bornTime": 1}, {"bornTime": -(2**63)}, {"bornTime": -(2**63), "pollTime": 2**63 - 1}, {"bornTime": None},
    {"pollTime": -(2**63)}, {"queueId": -(2**31)}, {"order": "yes"}, {"attemptId": "x" * 128}, {"maxMsgNums": 99},
]  # fmt: skip
"""Stock answers them, too."""


def opened(client: PopClient, group: str) -> int:
    """The open messages of a group. Gauges are a moment old."""
    answer = client.raw.ask(RequestCode.POP_INFLIGHT, {"consumerGroup": group})
    assert answer.code == 0, answer.remark
    return PopInflight.decode(answer.body).messages


def changed(fields: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """The fields with others. None: the field is missing."""
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


def test_refusals_have_stocks_codes_on_the_wire(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_bad", 1)
    client = PopClient(broker.address, "G_bad", "T_bad")
    send(broker.address, "T_bad", [b"a", b"b", b"c"], 1)
    taken = found(client, invisible_ms=HOUR_MS)
    fields = ack_fields(taken, client.group, "T_bad")
    pop = pop_fields(client.group, "T_bad", 1, HOUR_MS, 0, bornTime=0)  # now, whenever it is asked
    before = word(broker, Counter.MESSAGES), word(broker, Counter.ACKS)
    cases: list[tuple[int, dict[str, object], int]] = [
        *((POP, changed(pop, changes), code) for changes, code in REFUSED_POPS),
        *((ACK, without(changed(fields, changes), "invisibleTime"), code) for changes, code in REFUSED_ACKS),
        *((CHANGE, changed(fields, changes), code) for changes, code in REFUSED_CHANGES),
    ]
    answers = [client.raw.ask(request, asked) for request, asked, _ in cases]
    wrong = [
        (asked, code, answer.code, answer.remark)
        for (_, asked, code), answer in zip(cases, answers, strict=True)
        if answer.code != code
    ]
    assert not wrong
    assert (word(broker, Counter.MESSAGES), word(broker, Counter.ACKS)) == before
    assert client.ack(taken).code == 0
    assert word(broker, Counter.ACKS) == before[1] + 1


def test_bad_notifications_are_refused_and_wait_for_nothing(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_note", 1)
    client = PopClient(broker.address, "G_note", "T_note")
    assert client.pop() == []
    fields: dict[str, object] = {
        "consumerGroup": "G_note", "topic": "T_note", "queueId": 0, "pollTime": 0, "bornTime": time.time_ns() // 10**6,
    }  # fmt: skip
    cases = [
        *REFUSED_NOTIFICATIONS,
        *((changes | {"pollTime": HOUR_MS}, code) for changes, code in REFUSED_NOTIFICATIONS if code in (17, 26, 29)),
    ]
    wrong = [
        (changes, code, answer.code, answer.remark)
        for changes, code in cases
        if (answer := client.raw.ask(NOTIFICATION, changed(fields, changes))).code != code
    ]
    assert not wrong
    for changes in UNUSUAL_NOTIFICATIONS:
        answer = client.raw.ask(NOTIFICATION, changed(fields, changes))
        assert (answer.code, answer.ext_fields) == (0, NOTHING_THERE), changes


HUGE = (-(2**63), -1, 2**63 - 1)
LIES: list[tuple[int, object]] = [
    *((0, lie) for lie in (*HUGE, 1, 3)), *((1, lie) for lie in (*HUGE, 0, "+1", "-1")),
    (5, "broker-b"), (5, "x" * 900),
]  # fmt: skip
"""(Number of the receipt's field, its value). "+1": the true one and 1 more."""


def lied(receipt: str, number: int, lie: object) -> str:
    fields = receipt.split()
    fields[number] = str(int(fields[number]) + int(str(lie))) if lie in ("+1", "-1") else str(lie)
    return " ".join(fields)


def test_receipts_that_lie_end_no_message(broker: RunningBroker) -> None:
    """Start offset, pop time, broker, group, topic, queue and offset have to be those of the pop."""
    make_topic(broker.address, "T_lie", 2)
    make_topic(broker.address, "T_other", 2)
    for topic in ("T_lie", "T_other"):
        send(broker.address, topic, [b"%d" % number for number in range(12)])
    first, other = PopClient(broker.address, "G_lie", "T_lie"), PopClient(broker.address, "G_other", "T_lie")
    found(other, invisible_ms=HOUR_MS)
    taken = found(first, invisible_ms=HOUR_MS, queue_id=0)
    found(PopClient(broker.address, "G_lie", "T_other"), invisible_ms=HOUR_MS)
    before = word(broker, Counter.ACKS), word(broker, Counter.CHANGES)
    open_before = opened(first, "G_lie"), opened(first, "G_other")
    fields = ack_fields(taken, "G_lie", "T_lie")
    lies = [{**fields, "extraInfo": lied(taken.receipt, number, lie)} for number, lie in LIES]
    lies += [
        {**fields, **lie}
        for lie in ({"topic": "T_other"}, {"queueId": 1}, {"offset": 5}, {"offset": 6}, {"consumerGroup": "G_other"},
                    {"consumerGroup": "G_nobody"})
    ]  # fmt: skip
    for lie in lies:
        assert first.raw.ask(ACK, without(lie, "invisibleTime")).code == 0, lie
        assert first.raw.ask(CHANGE, lie).code in (0, 208), lie
    assert (word(broker, Counter.ACKS), word(broker, Counter.CHANGES)) == before
    assert (opened(first, "G_lie"), opened(first, "G_other")) == open_before
    assert first.change(taken, 50).code == 0
    (again,) = wait_until(lambda: [one for one in first.pop() if one.flag], "the true receipt counts")
    assert again.body == taken.body


def test_numbers_of_a_receipt_that_name_no_pop_change_nothing(broker: RunningBroker) -> None:
    """Invisible time, revive queue, flag, queue and offset of a receipt are not compared: as in RocketMQ, those of the
    request count."""
    make_topic(broker.address, "T_free", 1)
    send(broker.address, "T_free", [b"%d" % number for number in range(5)], 1)
    client = PopClient(broker.address, "G_free", "T_free")
    taken = [found(client, invisible_ms=HOUR_MS), *client.pop_all(count=1)]
    before = word(broker, Counter.ACKS)
    for one, number in zip(taken, (2, 3, 4, 6, 7), strict=True):
        receipt = lied(one.receipt, number, 998)
        assert client.raw.ask(ACK, {**ack_fields(one, "G_free", "T_free"), "extraInfo": receipt}).code == 0
    assert word(broker, Counter.ACKS) == before + 5


# -- bit maps ----------------------------------------------------------------------------------------------


def ack_group(taken: Taken, group: str, topic: str, bits: bytes, **more: object) -> dict[str, object]:
    start, pop_time, invisible, revive_queue, flag, _, queue_id, _ = taken.receipt.split()
    return {
        "b": base64.b64encode(bits).decode(), "c": group, "it": int(invisible), "pt": int(pop_time),
        "q": int(queue_id), "r": flag, "rq": int(revive_queue), "so": int(start), "t": topic, **more,
    }  # fmt: skip


def batch_ack(client: RawClient, *groups: dict[str, object], broker: str = "broker-a") -> RemotingCommand:
    body = json.dumps({"acks": list(groups), "brokerName": broker}, separators=(",", ":")).encode()
    return client.ask(BATCH_ACK, {}, body)


def test_bit_maps_that_do_not_fit(broker: RunningBroker) -> None:
    """Bits beside the pop are passed over, maps beyond the limit are refused."""
    make_topic(broker.address, "T_bits", 1)
    send(broker.address, "T_bits", [b"%d" % number for number in range(8)], 1)
    client = PopClient(broker.address, "G_bits", "T_bits")
    first = found(client, invisible_ms=HOUR_MS)
    second = client.pop(count=3, invisible_ms=HOUR_MS)[0]

    def ask(bits: bytes, **more: object) -> tuple[int, int]:
        """(Answer, acknowledged messages)."""
        before = word(broker, Counter.ACKS)
        answer = batch_ack(client.raw, ack_group(second, "G_bits", "T_bits", bits, **more))
        return answer.code, word(broker, Counter.ACKS) - before

    all_bits = b"\xff" * BITS_BYTES_MAX
    assert ask(all_bits + b"\xff") == (1, 0)
    assert ask(b"") == (0, 0)
    for start in (2**63 - 1, 2**63 - 2**20, -1, -(2**63), 2):
        assert ask(all_bits, so=start) == (0, 0), start
    assert ask(all_bits, q=7) == ask(all_bits, q=-1) == ask(all_bits, r="1") == ask(all_bits, t="T_none") == (0, 0)
    assert ask(all_bits, r="3") == ask(all_bits, r="") == ask(all_bits, so=2**63) == (1, 0)
    assert ask(all_bits, b="?") == ask(all_bits, b=[1, "x"]) == (1, 0)
    assert ask(all_bits, rq=999) == (0, 0), "an orderly pop"
    assert ask(b"\xfa") == (0, 1), "bit 1 is of the pop"
    assert ask(all_bits) == (0, 2), "the messages of the pop, and no other"
    assert client.ack(first).code == 0 and len(client.pop()) == 4


def test_a_million_acks_of_nothing_hold_up_nobody(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_flood", 1)
    send(broker.address, "T_flood", [b"%d" % number for number in range(100)], 1)
    client = PopClient(broker.address, "G_flood", "T_flood")
    taken = found(client, invisible_ms=HOUR_MS)
    many = [ack_group(taken, "G_flood", "T_flood", b"\xff" * 128, so=2 + number % 50) for number in range(GROUPS_MAX)]
    body = json.dumps({"acks": many, "brokerName": "broker-a"}, separators=(",", ":")).encode()
    late, requests = word(broker, Counter.ACKS_LATE), 40
    with RawClient(broker.address) as flood:
        asked = [flood.send_request(BATCH_ACK, {}, body) for _ in range(requests)]
        longest_s = 0.0
        for _ in range(40):
            began = time.monotonic()
            (one,) = client.pop(count=1)
            assert client.ack(one).code == 0
            longest_s = max(longest_s, time.monotonic() - began)
        answers = [flood.receive() for _ in asked]
    assert {answer.code for answer in answers if answer} == {0} and len(answers) == requests
    assert word(broker, Counter.ACKS_LATE) - late > 1_000_000
    assert longest_s < allowed(5, WALL), "a busy machine takes a moment, a million look-ups in one turn would not"


# -- consumers that do not come back -----------------------------------------------------------------------


def test_a_client_that_vanished_before_its_answer_takes_nothing(broker: RunningBroker) -> None:
    """The worker gets its pop late. The next one gives the messages, long before their time."""
    make_topic(broker.address, "T_gone", 1)
    bodies = [b"%d" % number for number in range(20)]
    send(broker.address, "T_gone", bodies, 1)
    client = PopClient(broker.address, "G_gone", "T_gone")
    held = [found(client, invisible_ms=HOUR_MS)]
    unsent, pid = word(broker, Counter.UNSENT), broker.worker_pids()["pop"]
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(3):
            with RawClient(broker.address) as gone:
                gone.send_request(POP, pop_fields("G_gone", "T_gone", 1 + number, HOUR_MS, 0))
                assert client.raw.pull("T_gone").code == 0, "the read worker has read it"
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: word(broker, Counter.UNSENT) == unsent + 3, "the worker is told")
    held += client.pop_all(invisible_ms=HOUR_MS)
    assert sorted(one.body for one in held) == sorted(bodies)
    assert all(client.ack(one).code == 0 for one in held)


def test_clients_that_break_their_connections_lose_nothing(broker: RunningBroker) -> None:
    """An answer of which a byte has left waits for its time."""
    make_topic(broker.address, "T_break", 1)
    bodies = [b"%d" % number for number in range(60)]
    send(broker.address, "T_break", bodies, 1)
    for number in range(30):
        with RawClient(broker.address) as gone:
            gone.send_request(POP, pop_fields("G_break", "T_break", 1 + number % 4, 100, -1))
    client, came = PopClient(broker.address, "G_break", "T_break"), set[bytes]()

    def is_all_there() -> bool:
        for one in client.pop_all(invisible_ms=HOUR_MS):
            came.add(one.body)
            assert client.ack(one).code == 0
        return came == set(bodies)

    wait_until(is_all_there, "each message has come")


def test_a_group_that_never_acknowledges_stops_itself_alone(broker: RunningBroker) -> None:
    make_topic(broker.address, "T_hog", 1)
    send(broker.address, "T_hog", [b"%d" % number for number in range(OPEN_MAX // 4 + 200)], 1)
    hog, other = PopClient(broker.address, "G_hog", "T_hog"), PopClient(broker.address, "G_fair", "T_hog")
    bound, taken = word(broker, Counter.BOUND), [found(hog, invisible_ms=HOUR_MS)]
    while got := hog.pop(count=1, invisible_ms=HOUR_MS):
        taken += got
    assert len(taken) <= OPEN_MAX // 4 and word(broker, Counter.BOUND) == bound + 1
    for _ in range(20):
        assert other.ack(found(other)).code == 0
    assert hog.ack(taken.pop()).code == 0
    wait_until(lambda: hog.pop(count=1, invisible_ms=HOUR_MS), "an acknowledgement makes room")
    wait_until(lambda: "found too many messages" in broker.log_tail(), "a line tells it")


def test_messages_that_nobody_acknowledges_take_no_more_room(broker: RunningBroker) -> None:
    """They come again and again. Entries of copies that were taken give way."""
    make_topic(broker.address, "T_never", 1)
    send(broker.address, "T_never", [b"%d" % number for number in range(10)], 1)
    client = PopClient(broker.address, "G_never", "T_never")
    open_before, times = word(broker, Gauge.OPEN), 0

    def is_old() -> bool:
        nonlocal times
        times = max([times, *(one.message.reconsume_times for one in client.pop(invisible_ms=20))])
        return times >= 8

    wait_until(is_old, "a message has come eight times")
    wait_until(lambda: word(broker, Gauge.OPEN) <= open_before + 10, "each is open once")
