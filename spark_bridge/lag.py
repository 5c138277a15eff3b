"""The lag of a streaming query behind the log, from Spark's progress of each batch. No IO, no Spark.

The lag of a queue is the number of offsets between the query's offset and the log's end when the batch ended.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.stream_core import OffsetsError, offsets_from_json

__all__ = ["Publish", "StreamLag", "lag_listener", "lag_of_progress", "log_lag"]

_log = logging.getLogger("ringmq.lag")


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of one query after one batch. `query` is its name, or its id if it has no name.

    `group` is the consumer group of its progress, if one was named.
    """

    query: str
    group: str | None
    batch_id: int
    timestamp: str
    queues: Mapping[QueueKey, int]

    @property
    def topics(self) -> dict[str, int]:
        """The lag of each topic, summed over its queues."""
        lags: dict[str, int] = {}
        for key, lag in self.queues.items():
            lags[key.topic] = lags.get(key.topic, 0) + lag
        return lags

    @property
    def total(self) -> int:
        """The lag of all topics."""
        return sum(self.queues.values())


Publish = Callable[[StreamLag], None]


def lag_of_progress(progress: Mapping[str, Any], group: str | None = None) -> StreamLag | None:
    """Return the lag in a query's progress (Spark's JSON), None if it reads no topics by this source.

    Other sources of the query are ignored.
    """
    queues: dict[QueueKey, int] = {}
    is_ours = False
    for source in progress.get("sources", ()):
        try:
            latest = offsets_from_json(_value(source.get("latestOffset")))
            place = offsets_from_json(_value(source.get("endOffset")))
        except OffsetsError:
            continue
        is_ours = is_ours or bool(latest)
        for key, end in latest.items():
            queues[key] = max(queues.get(key, 0), end - place.get(key, 0))
    if not is_ours:
        return None
    query = progress.get("name") or str(progress.get("id"))
    return StreamLag(query, group, int(progress.get("batchId", -1)), str(progress.get("timestamp")), queues)


def _value(offset: Any) -> Any:
    """Return an offset, which Spark gives as JSON, or as text with JSON."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def log_lag(lag: StreamLag) -> None:
    """Log one line for each topic, to the logger `ringmq.lag` at INFO."""
    for topic, rows in sorted(lag.topics.items()):
        query = f"{lag.query} (group {lag.group})" if lag.group else lag.query
        _log.info("query %s is %d behind the end of topic %s after batch %d", query, rows, topic, lag.batch_id)


def lag_listener(publish: Publish = log_lag, *, group: str | None = None) -> Any:
    """Return a `StreamingQueryListener` for `spark.streams.addListener` that passes each batch's lag to `publish`.

    Without a callback the lag is logged. The listener's `latest` holds the newest `StreamLag` of each running query
    by `query`. Name the group of the option `commitGroup` to have it in each report.
    """
    from pyspark_ringmq.listener import LagListener

    return LagListener(lambda progress: lag_of_progress(progress, group), publish)
