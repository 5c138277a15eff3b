"""Rows of the golden store, by both ways through shared memory, against its manifest and an independent decoder."""

import hashlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge.slices import Slice, TimeRange
from tests.spark_bridge.plain_decoder import log_rows
from tests.spark_bridge.reading import BROKER, Spans, in_queue_order, rows_of, slice_of

INNER_BATCH = 0x80
Entry = dict[str, Any]


def spans_of(entries: list[Entry], *, system_topics: bool = False) -> Spans:
    """What a planner would say of these records: those that some queue holds."""
    spans: Spans = {}
    for entry in entries:
        if entry["sysFlag"] & 0xC in (0x4, 0xC) or not (system_topics or is_user_topic(entry["topic"])):
            continue
        key, begin = (entry["topic"], entry["queueId"]), entry["queueOffset"]
        end = begin + (entry["batchSize"] if entry["sysFlag"] & INNER_BATCH else 1)
        found = spans.get(key, (begin, end))
        spans[key] = (min(found[0], begin), max(found[1], end))
    return spans


def log_slices(store: Path, manifest: list[Entry], records_max: int, **spans: Any) -> list[Slice]:
    """The whole log in ranges of at most so many records, none over the border of a file."""
    file_bytes = next((store / "commitlog").iterdir()).stat().st_size
    slices = []
    for _, group in itertools.groupby(manifest, lambda entry: entry["commitLogOffset"] // file_bytes):
        records = list(group)
        for part in (records[at : at + records_max] for at in range(0, len(records), records_max)):
            end = part[-1]["commitLogOffset"] + part[-1]["storeSize"]
            slices.append(slice_of(store, spans_of(part, **spans), (part[0]["commitLogOffset"], end)))
    return slices


@pytest.fixture(scope="module")
def expected(golden_store: Path) -> list[dict[str, Any]]:
    """What the independent decoder makes of the log, user topics only."""
    return [row for row in log_rows(golden_store, BROKER) if is_user_topic(row["topic"])]


@pytest.fixture(scope="module")
def rows(golden_store: Path, manifest: list[Entry]) -> list[dict[str, Any]]:
    return [row for part in log_slices(golden_store, manifest, 10_000) for row in rows_of(part)]


def test_a_log_walk_gives_what_the_independent_decoder_gives(
    rows: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    assert len(expected) > 4000
    assert rows == expected


def test_a_queue_walk_gives_the_same_rows(
    golden_store: Path, manifest: list[Entry], expected: list[dict[str, Any]]
) -> None:
    rows = rows_of(slice_of(golden_store, spans_of(manifest)))
    assert in_queue_order(rows) == in_queue_order(expected)
    for queue in spans_of(manifest):
        offsets = [row["offset"] for row in rows if (row["topic"], row["partition"]) == queue]
        assert offsets == sorted(offsets)


def test_every_column_says_what_the_manifest_says(rows: list[dict[str, Any]], manifest: list[Entry]) -> None:
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
        assert dict(row["properties"]) == properties
        assert int(row["timestamp"].timestamp() * 1000 + 0.5) == entry["storeTimestamp"]
        assert int(row["born_timestamp"].timestamp() * 1000 + 0.5) == entry["bornTimestamp"]
        assert row["sys_flag"] == entry["sysFlag"]
        assert len(row["value"]) == entry["bodyLength"]
        assert hashlib.sha256(row["value"]).hexdigest() == entry["bodySha256"]
        checked += 1
    assert checked > 3500


def test_messages_of_inner_batches_have_their_own_offsets(rows: list[dict[str, Any]]) -> None:
    offsets = [row["offset"] for row in rows if row["topic"] == "GoldBatchCQ"]
    assert len(offsets) > 125
    assert offsets == list(range(len(offsets)))


def test_system_topics_are_read_when_they_are_planned(golden_store: Path, manifest: list[Entry]) -> None:
    rows = rows_of(slice_of(golden_store, spans_of(manifest, system_topics=True)), ("topic",))
    found = [row["topic"] for row in rows]
    assert found.count("SCHEDULE_TOPIC_XXXX") == sum(e["topic"] == "SCHEDULE_TOPIC_XXXX" for e in manifest)
    assert (found.count("%RETRY%GG_RETRY"), found.count("%DLQ%GG_RETRY")) == (12, 4)


@pytest.mark.parametrize(
    ("records_max", "how"),
    [
        (1, {"window_bytes": 4096}),
        (7, {"window_bytes": 10_000, "batch_rows": 3}),
        (10_000, {"window_bytes": 700, "batch_bytes": 700}),
        (500, {"batch_bytes": 20_000}),
    ],
)
def test_ranges_windows_and_batches_change_nothing(
    golden_store: Path, manifest: list[Entry], rows: list[dict[str, Any]], records_max: int, how: dict[str, int]
) -> None:
    parts = log_slices(golden_store, manifest[:600], records_max)
    found = [row for part in parts for row in rows_of(part, **how)]
    assert found == rows[: len(found)]
    assert len(found) > 400


@pytest.mark.parametrize("how", [{"batch_rows": 1}, {"batch_rows": 7, "window_bytes": 4096}, {"batch_bytes": 700}])
def test_batches_change_nothing_in_a_queue_walk(
    golden_store: Path, manifest: list[Entry], expected: list[dict[str, Any]], how: dict[str, int]
) -> None:
    spans = {key: span for key, span in spans_of(manifest).items() if key[0] in ("GoldC", "GoldBatchCQ")}
    wanted = [row for row in in_queue_order(expected) if row["topic"] in ("GoldC", "GoldBatchCQ")]
    assert in_queue_order(rows_of(slice_of(golden_store, spans), **how)) == wanted


def test_offsets_and_times_narrow_both_walks(
    golden_store: Path, manifest: list[Entry], expected: list[dict[str, Any]]
) -> None:
    times = sorted(entry["storeTimestamp"] for entry in manifest)
    early, late = times[len(times) // 4], times[3 * len(times) // 4]
    spans = {key: (begin + 1, max(begin + 1, end - 2)) for key, (begin, end) in spans_of(manifest).items()}

    def is_wanted(row: dict[str, Any]) -> bool:
        begin, end = spans[row["topic"], row["partition"]]
        time_ms = round(row["timestamp"].timestamp() * 1000)
        return begin <= row["offset"] < end and early <= time_ms < late

    wanted = [row for row in expected if is_wanted(row)]
    assert 100 < len(wanted) < len(expected) - 100
    by_queue = rows_of(slice_of(golden_store, spans, None, TimeRange(early, late)))
    assert in_queue_order(by_queue) == in_queue_order(wanted)
    logs = [part.log for part in log_slices(golden_store, manifest, 10_000) if part.log is not None]
    parts = [slice_of(golden_store, spans, (log.begin, log.end), TimeRange(early, late)) for log in logs]
    assert [row for part in parts for row in rows_of(part)] == wanted


def test_columns_that_units_answer_are_the_same_as_from_records(
    golden_store: Path, manifest: list[Entry], expected: list[dict[str, Any]]
) -> None:
    columns = ("offset", "broker", "partition", "topic", "timestampType", "commit_log_offset")
    wanted = [{name: row[name] for name in columns} for row in expected]
    parts = log_slices(golden_store, manifest, 10_000)
    by_log = [row for part in parts for row in rows_of(part, columns)]
    assert in_queue_order(by_log) == in_queue_order(wanted)
    assert in_queue_order(rows_of(slice_of(golden_store, spans_of(manifest)), columns)) == in_queue_order(wanted)


def test_a_batch_may_reuse_the_memory_of_the_one_before(golden_store: Path, manifest: list[Entry]) -> None:
    part = slice_of(golden_store, spans_of(manifest))
    kept = rows_of(part, ("offset", "value"), batch_rows=100)
    from ringmq.spark_bridge.read_settings import ReadSettings
    from ringmq.spark_bridge.slice_reader import read_slice

    batches = read_slice(part, ("offset", "value"), ReadSettings(batch_rows=100, reuse_buffers=True))
    assert [row for batch in batches for row in batch.to_pylist()] == kept
