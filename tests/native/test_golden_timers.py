"""Recorded sends of timer messages through a read worker, beside the records and answers of stock (golden/timer)."""

import base64
import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from reader_kit import BOTH, MakeKit, ReaderKit, connected, send_frame
from test_admission_times import make_sparse, put

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.tables import admission
from ringmq.ipc.admission import publish_rules
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame
from ringmq.remoting.properties import decode_properties
from ringmq.timer.admission import timer_rules
from ringmq.timer.timer_wheel import SLOT

GOLDEN = Path(__file__).parents[1] / "golden" / "timer"
WHEEL, HALF = "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"
ADDITIONS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "GoldCluster"}
SENDS = (310, 320)
PASSED = {"deliver-ms-past", "deliver-ms-now", "delete-in-past"}
AHEAD_MS = 20_000
"""The other recorded times lie so much farther ahead than they did, so that none passes while the test waits."""


def exchanges() -> list[tuple[str, int, RemotingCommand, RemotingCommand]]:
    """(scenario, its time, request, stock's answer) of the sends."""
    rows = [json.loads(line) for line in gzip.decompress((GOLDEN / "frames.jsonl.gz").read_bytes()).splitlines()]
    pairs = zip(rows[::2], rows[1::2], strict=True)
    frames = [(row["scenario"], row["t"], *(decode_frame(bytes.fromhex(each["hex"])) for each in (row, answer)))
              for row, answer in pairs]  # fmt: skip
    return [found for found in frames if found[2].code in SENDS]


def make(make_kit: MakeKit, **changed: Any) -> ReaderKit:
    """A reader with all rules of a broker that serves timers."""
    kit = make_kit(broker_name=b"broker-t")
    kit.set_additions("".join(f"{name}\x01{value}\x02" for name, value in ADDITIONS.items()).encode())
    ids = {name: kit.wide_topic(name.encode(), queues) for name, queues in (
        ("GT", 2), ("SCHEDULE_TOPIC_XXXX", 18), (HALF, 1), (WHEEL, 1), ("%RETRY%G", 1))}  # fmt: skip
    config = BrokerConfig(**changed)
    features = admission.features()
    publish_rules(kit.plane, [rule for feature in features for rule in feature(config, ids.get)])
    kit.start("write")
    kit.start("read")
    return kit


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shifted(scenario: str, at_ms: int, request: RemotingCommand) -> RemotingCommand:
    """The request as if it were sent now. All times move by whole seconds."""
    by_ms = (now_ms() // 1000 - at_ms // 1000) * 1000 + (-1000 if scenario in PASSED else AHEAD_MS)
    pairs = decode_properties(request.ext_fields.get("i", ""))
    if "TIMER_DELIVER_MS" in pairs and pairs["TIMER_DELIVER_MS"].isdigit():
        pairs["TIMER_DELIVER_MS"] = str(int(pairs["TIMER_DELIVER_MS"]) + by_ms)
    request.ext_fields["i"] = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    return request


def stored(kit: ReaderKit, start: int) -> list[tuple[str, int, dict[str, str]]]:
    """(topic, queue, pairs) of the records from an offset on."""
    return [
        (data[view.topic_at : view.topic_at + view.topic_length].decode(), view.queue_id,
         decode_properties(data[view.properties_at : view.properties_at + view.properties_length].decode()))
        for _, data, view in kit.records(start)
    ]  # fmt: skip


def out_ms_of(pairs: dict[str, str], asked_at_ms: int) -> int:
    """TIMER_OUT_MS by the table of golden/timer, for a send at this time."""
    if "TIMER_DELAY_SEC" in pairs:
        at_ms = asked_at_ms + int(pairs["TIMER_DELAY_SEC"]) * 1000
    elif "TIMER_DELAY_MS" in pairs:
        at_ms = asked_at_ms + int(pairs["TIMER_DELAY_MS"])
    else:
        at_ms = int(pairs["TIMER_DELIVER_MS"])
    return (at_ms - 1) // 1000 * 1000


@pytest.mark.parametrize("serialise", BOTH)
def test_recorded_sends(make_kit: MakeKit, serialise: SerializeType) -> None:
    kit = make(make_kit)
    waiting = 0
    with connected(kit) as client:
        for scenario, at_ms, recorded, stock in exchanges():
            request = shifted(scenario, at_ms, recorded)
            request.serialize_type = serialise
            start, before_ms = kit.marks.append_offset, now_ms()
            answer = client.ask(encode_frame(request))
            after_ms = now_ms()
            assert answer.code == stock.code, (scenario, answer.remark)
            assert (answer.remark or "").startswith(stock.remark or ""), scenario
            keys = list(answer.ext_fields), list(stock.ext_fields)
            assert keys[0] == keys[1] if serialise is SerializeType.JSON else set(keys[0]) == set(keys[1]), scenario
            if answer.code:
                assert answer.remark and len(answer.remark) > len(stock.remark or ""), "it names what was asked"
                assert not stored(kit, start)
                continue
            records = stored(kit, start)
            in_wheel = [topic == WHEEL for topic, _, _ in records]
            waits = "recallHandle" in stock.ext_fields or scenario == "batch-outer-timer"
            assert in_wheel == [waits] * len(records), scenario
            if waits:
                waiting += 1
                possible = {out_ms_of(decode_properties(request.ext_fields["i"]), ms) for ms in (before_ms, after_ms)}
                check_waiting(scenario, request, records, answer, possible)
    assert waiting == 33


def check_waiting(
    scenario: str, request: RemotingCommand, records: list[Any], answer: RemotingCommand, possible: set[int]
) -> None:
    """A record of the timer topic, and the handle in its answer."""
    sent, is_half = decode_properties(request.ext_fields["i"]), scenario == "half-with-timer"
    for _, queue_id, pairs in records:
        real = {"REAL_TOPIC": HALF if is_half else "GT", "REAL_QID": "0", "TIMER_OUT_MS": pairs["TIMER_OUT_MS"]}
        more = {"__transactionId__": sent["UNIQ_KEY"]} if is_half else {}
        own = {} if request.code == SENDS[0] else {"UNIQ_KEY": pairs["UNIQ_KEY"]}
        assert (queue_id, pairs) == (0, sent | own | ADDITIONS | real | more), scenario
        assert int(pairs["TIMER_OUT_MS"]) in possible, scenario
    if request.code == SENDS[0]:
        handle = base64.urlsafe_b64decode(answer.ext_fields["recallHandle"]).decode().split(" ")
        out_ms = int(records[0][2]["TIMER_OUT_MS"])
        assert handle == ["v1", HALF if is_half else "GT", "broker-t", str(out_ms + 1), sent["UNIQ_KEY"]]
    assert answer.ext_fields["queueId"] == "0"


@pytest.mark.parametrize("length", range(30, 34))
def test_handles_of_every_padding(make_kit: MakeKit, length: int) -> None:
    kit = make(make_kit)
    key = "K" * length
    with connected(kit) as client:
        answer = client.ask(send_frame("GT", b"x", f"TIMER_DELAY_SEC\x0199\x02UNIQ_KEY\x01{key}\x02"))
        made = client.ask(send_frame("GT", b"x", "TIMER_DELAY_SEC\x0199\x02"))
        retry = client.ask(send_frame("%RETRY%G", b"x", "TIMER_DELAY_SEC\x0199\x02"))
    assert base64.urlsafe_b64decode(answer.ext_fields["recallHandle"]).decode().split(" ")[4] == key
    own = base64.urlsafe_b64decode(made.ext_fields["recallHandle"]).decode().split(" ")[4]
    assert own == made.ext_fields["transactionId"]
    assert retry.code == 0 and "recallHandle" not in retry.ext_fields, "as stock: a retry cannot be recalled"


def test_switches_and_full_slots(make_kit: MakeKit) -> None:
    kit = make(make_kit, timer_congest_num_each_slot=5)
    slot = now_ms() // 1000 + 3600
    path = kit.root / "timerwheel"
    make_sparse(path)
    put(path, slot, SLOT.pack(slot, 0, 52, 10, 0))

    def ask(at_ms: int) -> RemotingCommand:
        return client.ask(send_frame("GT", b"x", f"TIMER_DELIVER_MS\x01{at_ms}\x02"))

    with connected(kit) as client:
        full = ask(slot * 1000 + 1)
        assert (full.code, full.remark) == (
            1,
            "timer message is under flow control, max num limit is 10 or the current value is greater than 5 and less "
            f"than 10, trigger random flow control: TIMER_DELIVER_MS = {slot * 1000 + 1} asks for a slot of 10 "
            "messages",
        )
        assert ask(slot * 1000 + 1001).code == 0, "another slot"
        put(path, slot, SLOT.pack(slot, 0, 52, 5, 0))
        assert ask(slot * 1000 + 1).code == 0
        config = BrokerConfig(timer_wheel_enable=False)
        publish_rules(kit.plane, timer_rules(config, {WHEEL: 1}.get))
        off = ask(slot * 1000 + 1)
    assert (off.code, off.remark) == (
        1,
        f"accurate timer message is not enabled, timerWheelEnable is false: TIMER_DELIVER_MS = {slot * 1000 + 1}",
    )


def test_a_send_straight_to_the_timer_topic_is_stored_as_it_is(make_kit: MakeKit) -> None:
    """As stock. The worker passes over records that name no time."""
    kit = make(make_kit)
    with connected(kit) as client:
        answer = client.ask(send_frame(WHEEL, b"x", "UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x015\x02"))
    assert answer.code == 0 and "recallHandle" not in answer.ext_fields
    assert stored(kit, 0) == [(WHEEL, 0, {"UNIQ_KEY": "A", "TIMER_DELAY_SEC": "5", **ADDITIONS})]
