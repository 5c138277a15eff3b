"""Lag from a query's progress, in the forms in which Spark tells it."""

import json
import logging
from typing import Any

import pytest

from ringmq.spark_bridge.lag import lag_of_progress, log_lag
from ringmq.spark_bridge.slices import QueueKey

END = {"T": {"b:0": 10, "b:1": 7}, "U": {"c:0": 3}}
PLACE = {"T": {"b:0": 4, "b:1": 7}}


def progress(*sources: dict[str, Any], name: str | None = "counts") -> dict[str, Any]:
    return {"id": "4711", "name": name, "batchId": 12, "timestamp": "2026-01-01T00:00:00.000Z", "sources": sources}


@pytest.mark.parametrize("form", [json.dumps, lambda offsets: offsets])
def test_lag_is_what_lies_between_place_and_end(form: Any) -> None:
    lag = lag_of_progress(progress({"endOffset": form(PLACE), "latestOffset": form(END)}), "readers")
    assert lag is not None
    assert (lag.query, lag.group, lag.batch_id) == ("counts", "readers", 12)
    assert lag.queues == {QueueKey("T", "b", 0): 6, QueueKey("T", "b", 1): 0, QueueKey("U", "c", 0): 3}
    assert lag.topics == {"T": 6, "U": 3}
    assert lag.total == 9


def test_other_sources_have_no_say() -> None:
    ours, kafka = (
        {"endOffset": PLACE, "latestOffset": PLACE},
        {"endOffset": {"K": {"0": 1}}, "latestOffset": {"K": {"0": 9}}},
    )
    rate = {"endOffset": 5, "latestOffset": None}
    lag = lag_of_progress(progress(kafka, ours, rate, name=None))
    assert lag is not None
    assert (lag.query, lag.topics) == ("4711", {"T": 0})
    assert lag_of_progress(progress(kafka, rate)) is None


def test_a_line_for_each_topic(caplog: pytest.LogCaptureFixture) -> None:
    lag = lag_of_progress(progress({"endOffset": PLACE, "latestOffset": END}))
    assert lag is not None
    with caplog.at_level(logging.INFO, "ringmq.lag"):
        log_lag(lag)
    assert [record.getMessage() for record in caplog.records] == [
        "query counts is 6 behind the end of topic T after batch 12",
        "query counts is 3 behind the end of topic U after batch 12",
    ]
