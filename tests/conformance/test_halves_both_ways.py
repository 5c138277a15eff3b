"""A store with open transactions, popped messages, delayed messages and timer messages changes hands between stock and
RingMQ: transactions can be ended, once, receipts count, and what waits is delivered.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from tests.conformance import handed_delays, handed_timers
from tests.conformance.handed_delays import HandedDelays
from tests.conformance.handed_pops import DUE, LONG_MS, SHORT_MS, HandedPops
from tests.conformance.handed_timers import HandedTimers
from tests.conformance.servers import SMALL_FILES, Server
from tests.conformance.wire import send_fields, shortened
from tests.raw_client import SEND_V2, RawClient
from tests.waiting import wait_until

TOPIC, HALF, OP = "HandedOver", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12
SETTINGS = {
    **SMALL_FILES,
    **handed_timers.SETTINGS,
    "transactionTimeOut": 3_600_000,  # no check adds a copy of a half
    "transactionCheckInterval": 3_600_000,
    "transactionOpBatchInterval": 200,
    "ringmqPopExportAtStop": True,
}
OWN_FIELDS = ("UNIQ_KEY", "__transactionId__")
"""Properties that differ from message to message."""


@dataclass(frozen=True)
class Half:
    """A half message that a broker has stored."""

    offset: int
    position: int
    key: str


def store_half(client: RawClient, name: str) -> Half:
    key = f"7F00000100001234000000000000{ord(name):04X}"
    pairs = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": key, "KEYS": "order", "TAGS": "A"}
    now_ms = time.time_ns() // 1_000_000
    fields = {**send_fields(TOPIC, 0, pairs), "sysFlag": 4, "bornTimestamp": now_ms}
    answer = client.ask(SEND_V2, shortened(fields), name.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return Half(int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16), key)


def end(client: RawClient, half: Half, decision: int) -> int:
    fields = {
        "producerGroup": "P", "tranStateTableOffset": half.offset, "commitLogOffset": half.position,
        "commitOrRollback": decision, "msgId": half.key, "transactionId": half.key, "fromTransactionCheck": False,
    }  # fmt: skip
    return client.ask(RequestCode.END_TRANSACTION, fields).code


def read(client: RawClient, topic: str) -> Iterator[MessageExt]:
    offset = 0
    while (answer := client.pull(topic, offset=offset)).code == ResponseCode.SUCCESS:
        messages = decode_messages(answer.body)
        yield from messages
        offset += len(messages)


def bodies(client: RawClient, topic: str = TOPIC) -> list[str]:
    return sorted(bytes(message.body).decode() for message in read(client, topic))


def ended_offsets(client: RawClient) -> list[int]:
    return sorted(int(part) for body in bodies(client, OP) for part in body.split(",") if part)


def shape(message: MessageExt) -> dict[str, Any]:
    """All of a record that does not depend on its time and place."""
    return {
        "queue": (message.topic, message.queue_id),
        "flags": (message.sys_flag, message.flag),
        "reconsume_times": message.reconsume_times,
        "properties": {name: value for name, value in message.properties.items() if name not in OWN_FIELDS},
        "names": sorted(message.properties),  # stock writes them in the order of a HashMap
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ends", ["stop", "kill"])
@pytest.mark.parametrize(("first", "second"), [("stock-broker", "ringmq"), ("ringmq", "stock-broker")])
def test_the_other_broker_ends_transactions_and_delivers_what_waits(
    started: Callable[..., Server], first: str, second: str, ends: str
) -> None:
    timers, delays, pops = HandedTimers(), HandedDelays(), HandedPops("HandedPops")
    are_pops_handed = (first, ends) != ("ringmq", "kill")  # a killed RingMQ exports nothing
    before = started(first, f"halves-{first}-{ends}", settings={**SETTINGS, **handed_delays.BEFORE})
    with RawClient(before.broker) as client:
        timers.begin(client)
        delays.begin(client)
        halves = {name: store_half(client, name) for name in "ABCDEF"}
        assert end(client, halves["A"], COMMIT) == end(client, halves["B"], ROLLBACK) == ResponseCode.SUCCESS
        wait_until(lambda: ended_offsets(client) == [0, 1], "two ends have their record")
        wait_until(lambda: bodies(client) == ["A"], "what was committed is delivered")
        assert bodies(client, HALF) == list("ABCDEF")
        timers.wait_for_some(client, before.store)
        delays.wait_for_some(client)
    pops.begin(before.broker, SHORT_MS if ends == "stop" else LONG_MS)
    getattr(before, ends)()
    may_repeat = timers.may_repeat(before.store) if ends == "kill" else range(0)

    settings = {**SETTINGS, **handed_delays.AFTER}
    after = started(second, f"halves-{first}-{ends}-by-{second}", settings=settings, store=before.store)
    with RawClient(after.broker) as client:
        wait_until(lambda: bodies(client) == ["A"], "what was delivered is there")
        halves["G"] = store_half(client, "G")
        codes = [
            end(client, halves[name], decision)
            for name, decision in zip("CDG", (COMMIT, ROLLBACK, COMMIT), strict=True)
        ]
        assert codes == [ResponseCode.SUCCESS] * 3
        wait_until(lambda: ended_offsets(client) == [0, 1, 2, 3, 6], "the ends have their record")
        wait_until(lambda: bodies(client) == ["A", "C", "G"], "committed messages are delivered, each once")
        by_body = {bytes(message.body).decode(): message for message in read(client, HALF)}
        assert list(by_body) == list("ABCDEFG"), "no half was stored again"
        assert shape(by_body["G"]) == shape(by_body["A"]), "both brokers store half messages alike"
        delivered = {bytes(message.body).decode(): message for message in read(client, TOPIC)}
        assert shape(delivered["C"]) == shape(delivered["G"]) == shape(delivered["A"])
        assert [delivered[name].prepared_transaction_offset for name in "ACG"] == [
            halves[name].position for name in "ACG"
        ]
        records = list(read(client, OP))
        assert len({repr(shape(record)) for record in records}) == 1, "both brokers store op records alike"
        if are_pops_handed:
            pops.check(after.broker, due=(DUE,) if ends == "stop" else ())
        delays.check(client, may_repeat=ends == "kill")
        timers.check(client, may_repeat)
    after.stop()
