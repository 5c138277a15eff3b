"""Plans: every row in exactly one slice, whichever way the log is cut, and the same rows by log and by queues."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge import plan
from ringmq.spark_bridge.limits import read_spans
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.plan import columns_of, plan_batch, slices_of, useful_tasks
from ringmq.spark_bridge.pushed_filters import NO_FILTERS, PushedFilter, PushedFilters
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.schema import COLUMNS, KAFKA_COLUMNS
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import QueueKey, QueueSpan, Slice
from ringmq.store import markers
from tests.spark_bridge.fake_catalog import FakeCatalog
from tests.spark_bridge.made_store import MadeStore

Row = dict[str, Any]
ALL = tuple(COLUMNS)


def options_of(store: Path, **options: object) -> ReadOptions:
    return parse_options({"store": str(store)} | {name: str(value) for name, value in options.items()})


def slices(options: ReadOptions, filters: PushedFilters = NO_FILTERS) -> list[Slice]:
    return plan_batch(open_catalog(options), options, filters)


def rows(parts: list[Slice], columns: tuple[str, ...] = ALL) -> list[Row]:
    return [row for part in parts for batch in read_slice(part, columns, ReadSettings()) for row in batch.to_pylist()]


def in_order(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.fixture(scope="module")
def everything(golden_store: Path) -> list[Row]:
    """All rows, by one slice of queue spans."""
    options = options_of(golden_store)
    catalog = open_catalog(options)
    return in_order(rows(slices_of(catalog, read_spans(catalog, options), 1)))


def test_the_rows_are_those_of_the_manifest(everything: list[Row], manifest: list[Row]) -> None:
    expected: Counter[str] = Counter()
    for entry in manifest:
        if is_user_topic(entry["topic"]):
            expected[entry["topic"]] += entry["batchSize"] if entry["sysFlag"] & 0x80 else 1
    assert Counter(row["topic"] for row in everything) == expected


@pytest.mark.parametrize("tasks", [1, 3, 9, 40])
def test_a_full_scan_by_ranges_of_the_log(golden_store: Path, everything: list[Row], tasks: int) -> None:
    parts = slices(options_of(golden_store, minPartitions=tasks))
    assert all(part.log for part in parts)
    assert len(parts) >= tasks
    assert sum(part.rows_max for part in parts) == len(everything)
    assert in_order(rows(parts)) == everything
    logs = [part.log for part in parts if part.log]
    assert all(one.end <= other.begin for one, other in pairwise(logs))


def test_each_range_has_the_rows_of_its_queue_spans(golden_store: Path) -> None:
    """What the transports rely on: a slice says its rows twice."""
    for part in slices(options_of(golden_store, minPartitions=12)):
        by_queues = Slice(part.broker, part.spans, None, part.times)
        assert in_order(rows([part])) == in_order(rows([by_queues]))


@pytest.mark.parametrize("tasks", [1, 2, 7, 60])
def test_groups_of_queue_spans(golden_store: Path, everything: list[Row], tasks: int) -> None:
    options = options_of(golden_store)
    catalog = open_catalog(options)
    spans = read_spans(catalog, options)
    parts = slices_of(catalog, spans, tasks)
    sizes = [part.rows_max for part in parts]
    assert len(parts) == tasks
    assert max(sizes[:-1], default=0) - min(sizes[:-1], default=0) == 0 and sizes[-1] <= sizes[0]
    assert in_order(rows(parts)) == everything


def test_there_are_no_more_tasks_than_rows_or_records(golden_store: Path, everything: list[Row]) -> None:
    options = options_of(golden_store, minPartitions=1_000_000)
    catalog = open_catalog(options)
    by_queues = slices_of(catalog, read_spans(catalog, options), 1_000_000)
    assert [part.rows_max for part in by_queues] == [1] * len(everything)
    by_log = slices(options)
    assert sum(part.rows_max for part in by_log) == len(everything)
    assert 1000 < len(by_log) <= len({row["commit_log_offset"] for row in everything})


def test_a_part_of_the_topics_is_read_by_queues(golden_store: Path, everything: list[Row]) -> None:
    parts = slices(options_of(golden_store, subscribe="GoldTx,GoldDelay"))
    assert parts and not any(part.log for part in parts)
    assert in_order(rows(parts)) == [row for row in everything if row["topic"] in ("GoldTx", "GoldDelay")]


def test_the_newer_half_of_the_log_is_read_as_a_range(golden_store: Path, everything: list[Row]) -> None:
    times = sorted(row["timestamp"] for row in everything)
    since = int(times[len(times) // 2].timestamp() * 1000)
    options = options_of(
        golden_store, startingTimestamp=since, startingOffsetsByTimestampStrategy="latest", includeSystemTopics="true"
    )
    parts = slices(options)
    assert all(part.log and part.log.begin > 1 << 20 for part in parts)
    found = [row for row in in_order(rows(parts)) if is_user_topic(row["topic"])]
    assert found == [row for row in everything if row["timestamp"].timestamp() * 1000 >= since - 0.5]


@pytest.mark.parametrize("limit", [40, 1000])
def test_no_task_has_more_records_than_allowed(golden_store: Path, everything: list[Row], limit: int) -> None:
    parts = slices(options_of(golden_store, maxRecordsPerPartition=limit, subscribe="GoldA,GoldB,GoldC"))
    assert max(part.rows_max for part in parts) <= limit
    assert in_order(rows(parts, ("topic", "partition", "offset"))) == [
        {name: row[name] for name in ("topic", "partition", "offset")}
        for row in everything
        if row["topic"] in ("GoldA", "GoldB", "GoldC")
    ]


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_nor_of_those_that_no_queue_knows_yet(tmp_path: Path, limit: int) -> None:
    made = MadeStore(tmp_path / "store")
    for number in range(40):
        made.append(topic="T", queue_id=number % 2, body=b"%d" % number, is_dispatched=number < 10)
        if number >= 10:
            made.next_offsets["T", number % 2] += 1
    markers.write_abort(made.root, 1)
    parts = slices(options_of(made.root, maxRecordsPerPartition=limit))
    assert max(part.rows_max for part in parts) <= limit
    assert sorted(int(row["value"]) for row in rows(parts)) == list(range(40))


def test_offsets_bound_a_read(golden_store: Path, everything: list[Row]) -> None:
    starting, ending = json.dumps({"GoldC": {"0": 40}}), json.dumps({"GoldC": {"DEFAULT_BROKER:0": 90}})
    parts = slices(options_of(golden_store, subscribe="GoldC", startingOffsets=starting, endingOffsets=ending))
    expected = [row for row in everything if row["topic"] == "GoldC" and 40 <= row["offset"] < 90]
    assert in_order(rows(parts)) == expected and len(expected) == 50


CONDITIONS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("topic", "=", ("GoldA",)),
    ("topic", ">=", ("GoldC",)),
    ("partition", "=", (1, 3)),
    ("offset", "<", (25,)),
    ("offset", "=", (25,)),
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_narrow_to_the_rows_they_accept(
    golden_store: Path, everything: list[Row], condition: tuple[str, str, tuple[Any, ...]]
) -> None:
    given = PushedFilter(*condition)
    found = rows(slices(options_of(golden_store), PushedFilters((given,))))
    assert in_order(found) == [row for row in everything if given.accepts(row[given.column])]


def test_filters_by_time(golden_store: Path, everything: list[Row]) -> None:
    times_us = sorted(round(row["timestamp"].timestamp() * 1_000_000) for row in everything)
    low, high = times_us[1000], times_us[1400]
    filters = PushedFilters((PushedFilter("timestamp", ">=", (low,)), PushedFilter("timestamp", "<", (high,))))
    found = rows(slices(options_of(golden_store), filters))
    expected = [row for row in everything if low <= round(row["timestamp"].timestamp() * 1_000_000) < high]
    assert in_order(found) == expected and len(expected) > 300


def test_nothing_to_read_is_no_task(golden_store: Path) -> None:
    assert slices(options_of(golden_store), PushedFilters((PushedFilter("offset", ">", (1 << 40,)),))) == []


def test_slices_of_several_brokers_have_one_each() -> None:
    catalog = FakeCatalog({("Orders", "a", 0): (0, 70), ("Orders", "b", 0): (5, 35)})
    parts = slices_of(catalog, [QueueSpan(QueueKey(*name), *bounds) for name, bounds in catalog.known.items()], 4)
    assert [(part.broker.name, part.rows_max) for part in parts] == [
        ("a", 25),
        ("a", 25),
        ("a", 20),
        ("b", 25),
        ("b", 5),
    ]
    assert all({span.key.broker for span in part.spans} == {part.broker.name} for part in parts)


def test_records_of_an_earlier_topic_of_the_same_name_are_not_read(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    for number in range(6):
        made.append(topic="Again", body=b"old %d" % number, is_dispatched=False)
        made.append(topic="Other", body=b"%d" % number)
    for number in range(4):
        made.append(topic="Again", body=b"new %d" % number)
    parts = slices(options_of(made.root))
    assert all(part.log for part in parts)
    assert sorted(row["value"] for row in rows(parts) if row["topic"] == "Again") == [b"new %d" % n for n in range(4)]


def test_a_log_of_many_small_files_is_read_by_queues(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store", file_bytes=4096)
    for _ in range(40):
        made.append(topic="T", body=bytes(2500))
    assert made.end > 30 * 4096
    parts = slices(options_of(made.root))
    assert [(part.log, part.rows_max) for part in parts] == [(None, 40)]
    assert len(rows(parts)) == 40


def test_useful_tasks() -> None:
    assert useful_tasks(0) == useful_tasks(1 << 20) == 1
    assert useful_tasks(100 * plan.TASK_BYTES) == 100


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, KAFKA_COLUMNS),
        ({"includeHeaders": "true"}, (*KAFKA_COLUMNS, "headers")),
        ({"columns": "offset,broker"}, ("offset", "broker")),
        ({"columns": "value", "includeHeaders": "true"}, ("value", "headers")),
        ({"columns": "headers,value", "includeHeaders": "true"}, ("headers", "value")),
        ({"startingOffsets": "latest"}, KAFKA_COLUMNS),
        ({"endingOffsets": "latest", "maxOffsetsPerTrigger": "7"}, KAFKA_COLUMNS),
    ],
)
def test_columns_of_batches_and_streams(options: dict[str, str], columns: tuple[str, ...]) -> None:
    assert columns_of({"store": "/nowhere"} | options) == columns


def test_the_broker_is_a_column_where_several_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    several = FakeCatalog({("Orders", "a", 0): (0, 1), ("Orders", "b", 0): (0, 1)})
    monkeypatch.setattr(plan, "open_catalog", lambda options: several)
    assert columns_of({"bootstrap": "ns:9876"}) == (*KAFKA_COLUMNS, "broker")
