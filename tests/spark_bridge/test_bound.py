"""Nothing at or beyond the readable bound is planned, whoever owns the store."""

from pathlib import Path
from typing import Any

import pytest

from ringmq.ipc.watermark import NOT_LIVE, Watermarks
from ringmq.spark_bridge import plan
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.read import read_range
from ringmq.spark_bridge.schema import COLUMNS

CONFIRM_APPENDED, CONFIRM_FLUSHED = 0, 1


def watermarks(append: int, flushed: int, dispatched: int, policy: int) -> Watermarks:
    return Watermarks(True, append, flushed, dispatched, 0, policy, 0, 0, 1, 1)


def planned_end(options: ReadOptions) -> int:
    return max((log_range.end for log_range in plan.plan_read(options).ranges), default=0)


@pytest.fixture
def options(golden_store: Path) -> ReadOptions:
    return parse_options({"store": str(golden_store)})


def test_without_an_owner_the_queues_end_is_the_bound(options: ReadOptions, manifest: list[dict[str, Any]]) -> None:
    last = manifest[-1]
    assert planned_end(options) == last["commitLogOffset"] + last["storeSize"]


@pytest.mark.parametrize("policy", [CONFIRM_APPENDED, CONFIRM_FLUSHED])
def test_a_live_owner_with_a_stalled_flush(
    options: ReadOptions, manifest: list[dict[str, Any]], policy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended is all, durable is half: under the flushed policy the other half is not readable."""
    end = manifest[-1]["commitLogOffset"] + manifest[-1]["storeSize"]
    flushed = manifest[2000]["commitLogOffset"]
    monkeypatch.setattr(plan, "read_watermarks", lambda root: watermarks(end, flushed, flushed, policy))
    assert planned_end(options) == (flushed if policy == CONFIRM_FLUSHED else end)


def test_a_dead_owner_s_page_is_not_believed(
    options: ReadOptions, manifest: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "read_watermarks", lambda root: NOT_LIVE)
    assert planned_end(options) == manifest[-1]["commitLogOffset"] + manifest[-1]["storeSize"]


def test_a_topic_made_since_the_queues_were_listed_counts(options: ReadOptions) -> None:
    made_since = plan.ReadPlan((), frozenset({"Old"}), trust_offset=1000, readable_offset=2000)
    assert plan.wants_topic(made_since, options, "Old", 0)
    assert not plan.wants_topic(made_since, options, "Deleted", 999)
    assert plan.wants_topic(made_since, options, "New", 1000)
    assert not plan.wants_topic(made_since, options, "SCHEDULE_TOPIC_XXXX", 1000)


def test_a_file_that_retention_took_is_named(options: ReadOptions, tmp_path: Path) -> None:
    gone = plan.LogRange(str(tmp_path / "00000000000000000000"), 0, 0, 100)
    with pytest.raises(ReadError, match="retention"):
        list(read_range(gone, tuple(COLUMNS), lambda topic, at: True))


def test_a_file_shorter_than_planned_is_refused(options: ReadOptions, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(50))
    with pytest.raises(ReadError, match="50 bytes"):
        list(read_range(plan.LogRange(str(path), 0, 0, 100), tuple(COLUMNS), lambda topic, at: True))


def test_bytes_that_are_no_record_are_reported_with_their_place(options: ReadOptions, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"\x00\x00\x00\x40junk" * 100)
    with pytest.raises(ReadError, match="no record at 0"):
        list(read_range(plan.LogRange(str(path), 0, 0, 800), tuple(COLUMNS), lambda topic, at: True))
