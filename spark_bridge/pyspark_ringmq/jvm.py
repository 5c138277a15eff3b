"""Selection of the batch reads that the JVM source `ringmq-jvm` serves in place of the Python source, with their
options.

The JVM source reads files: the store has to be on the driver's host and the tasks in the driver's process. Times and
addresses are unknown to it, so the Python source's planner resolves them here to the offsets of each queue. A
pattern, which is Python's, is resolved to the topics that match it now.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ringmq.ipc.watermark import store_is_locked
from ringmq.spark_bridge.jar import FORMAT
from ringmq.spark_bridge.limits import chosen_queues, read_spans
from ringmq.spark_bridge.offsets_option import QueueTimes, SinceTime
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.option_table import BY_LOWER_NAME
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.store import layout, markers

__all__ = ["FORMAT", "jvm_options"]

PROVIDER = "io.ringmq.spark.RingmqProvider"
_SERVED = frozenset(
    {
        "store", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "failOnDataLoss",
        "minPartitions", "maxRecordsPerPartition", "includeHeaders", "columns", "verifyCrc", "includeSystemTopics",
    }
)  # fmt: skip
_POSITION_OPTIONS = frozenset({"subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"})


def jvm_options(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of the same read for the JVM source, None if the Python source must serve it.

    Raises `OptionError` for options that no source accepts.
    """
    options = parse_options(given)
    if options.open_messages or not _can_read_files(options) or not _is_there(spark):
        return None
    names = {"path": "store"} | {name.lower(): option.name for name, option in BY_LOWER_NAME.items()}
    served = {names[name.lower()]: text for name, text in given.items() if names.get(name.lower()) in _SERVED}
    served["store"] = str(options.store)
    if any(isinstance(limit, SinceTime | QueueTimes) for limit in (options.starting, options.ending)):
        return _resolved(options, served)
    return served if options.topics.is_open else _by_names(options, served)


def _by_names(options: ReadOptions, served: dict[str, str]) -> dict[str, str] | None:
    """Return the same read by the names of existing topics, None if a pattern matches none."""
    topics = sorted({key.topic for key in chosen_queues(open_catalog(options), options)})
    if options.topics.pattern is None:
        return served
    kept = {name: text for name, text in served.items() if name != "subscribePattern"}
    return kept | {"subscribe": ",".join(topics)} if topics else None


def _can_read_files(options: ReadOptions) -> bool:
    """True if the store is on this host, and its end is known without a recovery."""
    root = options.store
    if root is None or options.transport == "tcp" or not (root / layout.COMMIT_LOG).is_dir():
        return False
    is_clean = not markers.has_abort(root) and markers.failed_cause(root) is None
    return is_clean or store_is_locked(root)


def _is_there(spark: SparkSession) -> bool:
    """True if tasks run in the driver's process and its class path has the jar."""
    jvm: Any = getattr(spark, "_jvm", None)  # a remote (Connect) session has none
    if jvm is None or not (spark.sparkContext.master or "").startswith("local"):
        return False
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(PROVIDER)
    except Exception:  # py4j's error carries the ClassNotFoundException
        return False
    return True


def _resolved(options: ReadOptions, served: dict[str, str]) -> dict[str, str] | None:
    """Return the same read with the offsets of each queue."""
    spans = read_spans(open_catalog(options), options)
    if not spans:
        return None
    queues: dict[str, list[int]] = {}
    limits: dict[str, dict[str, dict[int, int]]] = {"startingOffsets": {}, "endingOffsets": {}}
    for span in spans:
        queues.setdefault(span.key.topic, []).append(span.key.queue_id)
        limits["startingOffsets"].setdefault(span.key.topic, {})[span.key.queue_id] = span.begin
        limits["endingOffsets"].setdefault(span.key.topic, {})[span.key.queue_id] = span.end
    kept = {name: text for name, text in served.items() if name not in _POSITION_OPTIONS}
    return kept | {"assign": json.dumps(queues)} | {name: json.dumps(offsets) for name, offsets in limits.items()}
