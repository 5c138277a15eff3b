"""Rows of the golden store against its manifest: every record, every column, whatever the ranges and windows."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.plan import plan_read, wants_topic
from ringmq.spark_bridge.read import read_range
from ringmq.spark_bridge.schema import COLUMNS

INNER_BATCH = 0x80


def read_rows(options: ReadOptions, **how: Any) -> list[dict[str, Any]]:
    plan = plan_read(options)

    def keep(topic: str, commit_log_offset: int) -> bool:
        return wants_topic(plan, options, topic, commit_log_offset)

    return [
        row
        for log_range in plan.ranges
        for batch in read_range(log_range, options.columns or tuple(COLUMNS), keep, **how)
        for row in batch.to_pylist()
    ]


def message_count(entry: dict[str, Any]) -> int:
    return int(entry["batchSize"]) if entry["sysFlag"] & INNER_BATCH else 1


@pytest.fixture(scope="module")
def rows(golden_store: Path) -> list[dict[str, Any]]:
    return read_rows(parse_options({"store": str(golden_store)}))


def test_every_message_of_every_user_topic_is_there(rows: list[dict[str, Any]], manifest: list[dict[str, Any]]) -> None:
    expected: Counter[str] = Counter()
    for entry in manifest:
        if is_user_topic(entry["topic"]):
            expected[entry["topic"]] += message_count(entry)
    assert Counter(row["topic"] for row in rows) == expected
    assert expected["GoldBatchCQ"] > 125, "inner batches must count their messages"


def test_system_topics_are_there_on_demand(golden_store: Path, manifest: list[dict[str, Any]]) -> None:
    rows = read_rows(parse_options({"store": str(golden_store), "includeSystemTopics": "true"}))
    found = Counter(row["topic"] for row in rows)
    assert found["SCHEDULE_TOPIC_XXXX"] == sum(e["topic"] == "SCHEDULE_TOPIC_XXXX" for e in manifest)
    assert found["%RETRY%GG_RETRY"] == 12
    assert found["%DLQ%GG_RETRY"] == 4


def test_every_column_says_what_the_manifest_says(rows: list[dict[str, Any]], manifest: list[dict[str, Any]]) -> None:
    by_offset = {row["commit_log_offset"]: row for row in rows}
    checked = 0
    for entry in manifest:
        if not is_user_topic(entry["topic"]) or entry["sysFlag"] & INNER_BATCH:
            continue
        row = by_offset[entry["commitLogOffset"]]
        properties = entry["properties"]
        assert row["topic"] == entry["topic"]
        assert (row["partition"], row["offset"]) == (entry["queueId"], entry["queueOffset"])
        assert row["key"] == (properties["KEYS"].encode() if "KEYS" in properties else None)
        assert row["tags"] == properties.get("TAGS")
        assert row["msg_id"] == properties.get("UNIQ_KEY", entry["offsetMsgId"])
        assert int(row["timestamp"].timestamp() * 1000 + 0.5) == entry["storeTimestamp"]
        assert row["timestampType"] == 1
        assert len(row["value"]) == entry["bodyLength"]
        assert hashlib.sha256(row["value"]).hexdigest() == entry["bodySha256"]
        checked += 1
    assert checked > 3500


def test_messages_of_inner_batches_have_their_own_offsets(rows: list[dict[str, Any]]) -> None:
    offsets = [row["offset"] for row in rows if row["topic"] == "GoldBatchCQ"]
    assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize(("ranges", "window_bytes"), [(1, 4096), (350, 100_000), (4000, 4096)])
def test_ranges_and_windows_change_nothing(
    golden_store: Path, rows: list[dict[str, Any]], ranges: int, window_bytes: int
) -> None:
    options = parse_options({"store": str(golden_store), "minPartitions": str(ranges)})
    assert read_rows(options, window_bytes=window_bytes) == rows


def test_a_range_read_twice_gives_the_same_rows(golden_store: Path) -> None:
    options = parse_options({"store": str(golden_store), "minPartitions": "7"})
    plan = plan_read(options)
    assert len(plan.ranges) >= 7
    for log_range in plan.ranges:
        first, second = (
            [b.to_pylist() for b in read_range(log_range, tuple(COLUMNS), lambda topic, at: True)] for _ in range(2)
        )
        assert first == second


def test_columns_can_be_chosen(golden_store: Path) -> None:
    options = parse_options({"store": str(golden_store), "columns": "offset,topic", "subscribe": "GoldC"})
    rows = read_rows(options)
    assert list(rows[0]) == ["offset", "topic"]
    assert {row["topic"] for row in rows} == {"GoldC"}
    assert sorted(row["offset"] for row in rows) == list(range(len(rows)))
