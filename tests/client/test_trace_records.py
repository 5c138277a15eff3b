"""Trace records line by line as stock's encoder wrote them, and the buffer that holds them until they are sent."""

import pytest

from ringmq.client.observing.trace_buffer import TraceBuffer, TraceCounts, TraceSettings
from ringmq.client.observing.trace_records import (
    ConsumeBeginRecord,
    ConsumeEndRecord,
    ConsumeOutcome,
    MessageType,
    SentRecord,
    TracedMessage,
    TraceRecord,
    TransactionEndRecord,
    index_keys,
)
from ringmq.remoting.message import Message

AT = 1_700_000_000_123
REGION, GROUP, HOST = "DefaultRegion", "billing", "10.0.0.1:10911"


def sent(message: TracedMessage, tags: str | None) -> SentRecord:
    return SentRecord(message, AT, REGION, GROUP, "Orders", tags, HOST, 5, 7, MessageType.DELAY, "OFF1", True)


# what TraceDataEncoder of 5.3.3 made of the same values, U+0001 and U+0002 as | and $
@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            sent(TracedMessage("MSG1", "k1 k2"), "tag"),
            "Pub|1700000000123|DefaultRegion|billing|Orders|MSG1|tag|k1 k2|10.0.0.1:10911|5|7|3|OFF1|true$",
        ),
        (
            sent(TracedMessage("MSG1"), None),
            "Pub|1700000000123|DefaultRegion|billing|Orders|MSG1|null|null|10.0.0.1:10911|5|7|3|OFF1|true$",
        ),
        (
            ConsumeBeginRecord(TracedMessage("MSG1", "k1"), AT, REGION, GROUP, "REQ1", 2),
            "SubBefore|1700000000123|DefaultRegion|billing|REQ1|MSG1|2|k1$",
        ),
        (
            ConsumeBeginRecord(TracedMessage("MSG1"), AT, REGION, GROUP, "REQ1", 2),
            "SubBefore|1700000000123|DefaultRegion|billing|REQ1|MSG1|2|null$",
        ),
        (
            ConsumeEndRecord(TracedMessage("MSG1", "k1"), AT, GROUP, "REQ1", 7, ConsumeOutcome.FAILED),
            "SubAfter|REQ1|MSG1|7|false|k1|4|1700000000123|billing$",
        ),
        (
            TransactionEndRecord(
                TracedMessage("MSG1", "k1"), AT, REGION, GROUP, "Orders", "tag", HOST, MessageType.DELAY, "TX1",
                "COMMIT_MESSAGE", True,
            ),
            "EndTransaction|1700000000123|DefaultRegion|billing|Orders|MSG1|tag|k1|10.0.0.1:10911|3|TX1|"
            "COMMIT_MESSAGE|true$",
        ),
    ],
)  # fmt: skip
def test_lines_are_stock_s(record: TraceRecord, line: str) -> None:
    assert record.encode().replace("\x01", "|").replace("\x02", "$") == line


def test_records_are_found_by_ids_and_keys() -> None:
    records = [sent(TracedMessage("M1", "k1 k2"), None), sent(TracedMessage("M2", "k2"), None)]
    assert index_keys(records) == ["M1", "M2", "k1", "k2"]


def begin(number: int, keys: str | None = None) -> ConsumeBeginRecord:
    return ConsumeBeginRecord(TracedMessage(f"M{number}", keys), AT, REGION, GROUP, "R", 0)


def count(message: Message | None) -> int:
    return 0 if message is None else message.body.count(b"\x02")


def test_a_batch_leaves_when_it_is_full_or_has_waited() -> None:
    buffer = TraceBuffer(TraceSettings(batch_records=3, flush_interval_ms=100))
    assert buffer.take(0, everything=True) is None
    for number in range(4):
        buffer.add(begin(number), 1000 + number)
    full = buffer.take(1003)
    assert full is not None
    assert (full.topic, full.keys, count(full)) == ("RMQ_SYS_TRACE_TOPIC", ["M0", "M1", "M2"], 3)
    assert buffer.take(1102) is None
    assert count(buffer.take(1103)) == 1
    buffer.add(begin(9), 2000)
    assert count(buffer.take(2000, everything=True)) == 1


def test_a_full_buffer_drops_and_counts() -> None:
    buffer = TraceBuffer(TraceSettings(batch_records=2, buffer_records_max=3))
    assert [buffer.add(begin(number), 0) for number in range(5)] == [True, True, True, False, False]
    message = buffer.take(0)
    assert message is not None
    buffer.note_lost(message)
    assert buffer.counts() == TraceCounts(recorded=3, dropped=2, lost=2)


def test_messages_stay_inside_what_properties_and_bodies_may_hold() -> None:
    buffer = TraceBuffer(TraceSettings(batch_records=20))
    long_keys = " ".join(f"key{number}-{'x' * 90}" for number in range(100))
    for number in range(3):
        buffer.add(begin(number, long_keys), 0)
    buffer.add(begin(3, " ".join(f"key{number}" for number in range(3000))), 0)
    sizes = []
    while (message := buffer.take(0, everything=True)) is not None:
        sizes.append((count(message), len(message.properties["KEYS"])))
    assert [records for records, _ in sizes] == [1, 1, 1, 1]
    assert max(size for _, size in sizes) < 16_384
    assert sizes[-1] == (1, 2), "too many keys to be indexed: the id alone"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": "a b"}, "illegal"),
        ({"batch_records": 0}, "batch_records must be 1 to 1000"),
        ({"flush_interval_ms": 70_000}, "flush_interval_ms must be 1 to 60000"),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TraceSettings(**arguments)  # type: ignore[arg-type]
