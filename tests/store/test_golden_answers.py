"""The golden store's questions and stock's answers: queue bounds, keys, times; reads by offset and by id."""

from pathlib import Path
from typing import Any

import pytest

from ringmq.store.message_store import TIME_MAX_MS, GetStatus, MessageStore
from ringmq.store.offset_search import Boundary
from ringmq.store.record import parse_record
from tests.store.golden_stores import basic_config

ENTRY = dict[str, Any]


@pytest.fixture(scope="module")
def store(golden_basic: Path) -> MessageStore:
    return MessageStore(basic_config(golden_basic))


@pytest.fixture(scope="module")
def end(expected: ENTRY) -> int:
    return int(expected["commitLogMaxOffset"])


def test_queue_bounds(store: MessageStore, expected: ENTRY, end: int) -> None:
    assert store.commit_log.min_offset == expected["commitLogMinOffset"]
    assert store.queue_end() == max(queue["latestUnit"][1] + queue["latestUnit"][2] for queue in expected["queues"])
    for queue in expected["queues"]:
        name = (queue["topic"], queue["queueId"])
        assert store.max_offset(*name, end) == queue["maxOffset"]
        assert store.min_offset(*name, end) == queue["minOffset"]
        reader = store.queue(*name)
        assert reader is not None
        # For a batch queue stock's value is the begin of the last record, ours always the end.
        physical_end = queue["latestUnit"][1] + queue["latestUnit"][2]
        assert reader.trusted_end() == (queue["maxOffset"], physical_end)
        first = reader.unit(queue["minOffset"])
        assert first is not None
        assert [first.queue_offset, first.commit_log_offset, first.size, first.tags_code] == queue["firstUnit"]


def test_every_message_is_served_by_queue_offset(store: MessageStore, manifest: list[ENTRY], end: int) -> None:
    queued = [entry for entry in manifest if entry["sysFlag"] & 0xC not in (0x4, 0xC)]
    for entry in queued:
        result = store.get_messages(entry["topic"], entry["queueId"], entry["queueOffset"], 1, end)
        assert result.status is GetStatus.FOUND
        _, record = parse_record(result.records[0], result.units[0].commit_log_offset)
        assert record is not None and record.physical_offset == entry["commitLogOffset"]
        assert result.next_offset == entry["queueOffset"] + max(1, entry["batchSize"])


def test_a_message_in_the_middle_of_a_batch(store: MessageStore, end: int) -> None:
    whole = store.get_messages("GoldBatchCQ", 0, 0, 1000, end)
    big = next(unit for unit in whole.units if unit.batch_size > 1)  # type: ignore[union-attr]
    assert store.get_messages("GoldBatchCQ", 0, big.queue_offset + 1, 1, end).units == (big,)


def test_statuses(store: MessageStore, end: int) -> None:
    ask = store.get_messages
    assert ask("NoSuchTopic", 0, 0, 1, end).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert ask("GoldA", 0, 196, 1, end).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert ask("GoldA", 0, 197, 1, end).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert ask("GoldA", 0, 197, 1, end).next_offset == 196
    assert ask("GoldA", 0, -1, 1, end).status is GetStatus.OFFSET_TOO_SMALL
    assert ask("GoldA", 0, 0, 1, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    filtered = ask("GoldA", 0, 3, 5, end, accepts=lambda unit: False)
    assert (filtered.status, filtered.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 196)


def test_nothing_behind_the_readable_offset_is_seen(store: MessageStore, manifest: list[ENTRY]) -> None:
    """On every path: maximum, read by queue offset, by id, by key, by time."""
    entry = next(entry for entry in manifest if entry["topic"] == "GoldB" and entry["queueOffset"] == 100)
    offset, queue_id = entry["commitLogOffset"], entry["queueId"]
    for readable in (offset, offset + entry["storeSize"] - 1):
        assert store.max_offset("GoldB", queue_id, readable) == 100
        assert store.get_messages("GoldB", queue_id, 100, 1, readable).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.message_at(offset, readable) is None
        assert store.query("GoldB", entry["uniqKey"], 32, readable) == []
        assert store.offset_by_time("GoldB", queue_id, TIME_MAX_MS, readable) == 100
        assert store.store_time("GoldB", queue_id, 100, readable) == -1
    readable = offset + entry["storeSize"]
    assert store.max_offset("GoldB", queue_id, readable) == 101
    assert store.message_at(offset, readable) is not None
    assert len(store.query("GoldB", entry["uniqKey"], 32, readable)) == 1


def test_index_queries(store: MessageStore, expected: ENTRY, end: int) -> None:
    for query in expected["indexQueries"]:
        end_ms = TIME_MAX_MS if query["end"] == "max" else query["end"]
        got = store.query(query["topic"], query["key"], query["maxNum"], end, query["begin"], end_ms)
        assert [record.commit_log_offset for record in got] == query["commitLogOffsets"], query
        if query["end"] == "max" and query["commitLogOffsets"]:
            assert store.index.last_update() == (
                query["indexLastUpdateTimestamp"],
                query["indexLastUpdatePhyoffset"],
            )


def test_offsets_by_time(store: MessageStore, expected: ENTRY, end: int) -> None:
    for ask in expected["offsetByTime"]:
        place = (ask["topic"], ask["queueId"], ask["timestamp"], end)
        assert store.offset_by_time(*place, Boundary.LOWER) == ask["lower"], ask
        is_exact = ask["topic"] != "GoldBatchCQ" or ask["timestamp"] in (1795208890562, 1795208891059, 1795208891143)
        if is_exact:  # between two units of a batch queue stock's UPPER is an accident of its search
            assert store.offset_by_time(*place, Boundary.UPPER) == ask["upper"], ask


def test_earliest_times(store: MessageStore, manifest: list[ENTRY], end: int) -> None:
    assert store.earliest_store_time(end) == manifest[0]["storeTimestamp"]
    first = next(entry for entry in manifest if entry["topic"] == "GoldB" and entry["queueId"] == 2)
    assert store.store_time("GoldB", 2, store.min_offset("GoldB", 2, end), end) == first["storeTimestamp"]
    assert store.store_time("NoSuchTopic", 0, 0, end) == -1
