"""Check points and acknowledgements, compared with those that a stock broker has written."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringmq.pop import revive_records as records
from ringmq.pop.revive_records import Acks, CheckPoint, Pop, ReviveRecordError, read_record
from ringmq.store.record import parse_record

RECORDS = Path(__file__).parent.parent / "golden" / "pop" / "revive-records.jsonl"
TOPIC = "rmq_sys_REVIVE_LOG_GoldCluster"
POP = Pop("T", "G", 2, 100, 1_700_000_000_000, "broker-a")


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def written(read: CheckPoint | Acks, tag: str) -> tuple[bytes, str]:
    """Body and key of a record, as this project writes it."""
    if isinstance(read, CheckPoint):
        return records.check_point_body(read), records.check_point_key(read.pop)
    if tag == records.ACK:
        return records.ack_body(read), records.ack_key(read)
    return records.batch_ack_body(read), records.batch_ack_key(read)


def deliver_ms(read: CheckPoint | Acks, points: dict[Pop, CheckPoint]) -> int:
    if isinstance(read, CheckPoint):
        return read.due_ms - records.EARLIER_MS
    pop = read.pop._replace(broker="broker-p")
    return points[pop].due_ms


def test_records_of_a_stock_broker_are_read_and_written_byte_by_byte() -> None:
    rows = recorded()
    points: dict[Pop, CheckPoint] = {}
    seen = set()
    for row in rows:
        read = read_record(row["tag"], row["body"].encode())
        if isinstance(read, CheckPoint):
            points[read.pop] = read
    for row in rows:
        _, record = parse_record(bytes.fromhex(row["hex"]))
        assert record is not None
        read = read_record(row["tag"], record.body)
        body, key = written(read, row["tag"])
        assert body == record.body
        assert key == row["properties"]["UNIQ_KEY"]
        at_ms = int(row["properties"]["TIMER_DELIVER_MS"])
        assert at_ms == deliver_ms(read, points)
        if row["stage"] == "timer":
            queue, out_ms = int(row["properties"]["REAL_QID"]), records.out_ms(at_ms, 1000)
            pairs = records.timed_properties(at_ms, key, row["tag"], TOPIC, queue, out_ms)
        elif "TIMER_DEQUEUE_MS" in row["properties"]:
            continue  # the timer has written its pairs
        else:
            pairs = records.plain_properties(at_ms, key, row["tag"])
        assert pairs == record.properties_raw
        seen.add((row["stage"], row["tag"], bool(read.pop.broker)))
    assert seen == {
        ("timer", "ck", True), ("timer", "ack", True), ("timer", "bAck", True), ("timer", "bAck", False),
        ("revive", "ck", True), ("revive", "ack", True),
    }  # fmt: skip


def test_a_time_at_the_begin_of_a_slot_goes_into_the_slot_before() -> None:
    assert [records.out_ms(ms, 1000) for ms in (1999, 2000, 2001)] == [1000, 1000, 2000]


def test_members_of_a_check_point() -> None:
    point = CheckPoint(POP, 60_000, (0, 1, 5), acked=0b100, put_again=3)
    assert read_record("ck", records.check_point_body(point)) == point
    assert point.open_offsets == [100, 101]
    assert point.due_ms == 1_700_000_060_000
    older = json.loads(records.check_point_body(point))
    del older["d"], older["bm"], older["bn"]
    assert read_record("ck", json.dumps(older).encode()) == CheckPoint(POP._replace(broker=""), 60_000, (0, 1, 2), 0, 3)


def test_acknowledgements_of_older_writers() -> None:
    body = {
        "ackOffset": 101, "brokerName": "broker-a", "consumerGroup": "G", "popTime": POP.pop_time_ms, "queueId": 2,
        "startOffset": 100, "topic": "T",
    }  # fmt: skip
    assert read_record("ack", json.dumps(body).encode()) == Acks(POP, (101,))
    assert read_record("bAck", json.dumps(body | {"ackOffsetList": [1, 2]}).encode()) == Acks(POP, (1, 2))


@pytest.mark.parametrize(
    ("tag", "change", "field"),
    [
        ("", {}, "tag"), ("ck", {"t": 5}, "t "), ("ck", {"t": ""}, "t "), ("ck", {"c": "g" * 256}, "c "),
        ("ck", {"bn": ["b"]}, "bn"), ("ck", {"q": -1}, "q "), ("ck", {"q": 1 << 31}, "q "),
        ("ck", {"n": 65}, "n "), ("ck", {"d": [0] * 65}, "d "),
        ("ck", {"so": 1 << 63}, "so"), ("ck", {"so": True}, "so"), ("ck", {"pt": "5"}, "pt"),
        ("ck", {"pt": 1 << 63}, "pt"),
        ("ck", {"it": (1 << 63) - 5}, "it"), ("ck", {"it": -1}, "it"), ("ck", {"n": None}, "n "),
        ("ck", {"n": 1025, "d": None}, "n "), ("ck", {"d": [0] * 1025}, "d "), ("ck", {"d": {"a": 1}}, "d "),
        ("ck", {"d": [-1]}, "d "), ("ck", {"d": [1.5]}, "d "), ("ck", {"bm": 1 << 32}, "bm"), ("ck", {"bm": "1"}, "bm"),
        ("ck", {"rp": 5}, "rp"), ("ck", {"rp": "-1"}, "rp"), ("ck", {"rp": "1" * 10}, "rp"),
        ("ack", {"ao": -1}, "ao"), ("ack", {"ao": None}, "ao"), ("bAck", {}, "aol"), ("bAck", {"aol": [None]}, "aol"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_with_the_field(tag: str, change: dict[str, Any], field: str) -> None:
    body = json.loads(records.check_point_body(CheckPoint(POP, 60_000, (0, 1)))) | change
    with pytest.raises(ReviveRecordError, match=f"^{field}"):
        read_record(tag, json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff{}", b"[" * 50_000, b'{"t":"' + b"a" * 70_000 + b'"}'])
def test_a_body_that_is_no_record_is_refused(body: bytes) -> None:
    with pytest.raises(ReviveRecordError, match="body"):
        read_record("ck", body)
