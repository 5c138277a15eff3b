"""The begin and end of a read in each queue: the options' limits, resolved on a catalog.

Rules of Spark's Kafka source:

* Offsets by queue name every queue of the read and no other.
* A time that a queue does not reach is an error as a start, or the queue's end by startingOffsetsByTimestampStrategy.
  As an end it is the queue's end.
* An offset out of range is data loss.

Ends are frozen here.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import DataLossError
from ringmq.spark_bridge.offsets_option import (
    EARLIEST,
    LATEST,
    Everywhere,
    Limit,
    QueueName,
    QueueTimes,
    SinceTime,
)
from ringmq.spark_bridge.option_table import OPTION, Option, OptionError
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import QueueKey, QueueSpan

log = logging.getLogger("ringmq.spark_bridge")

NAMES_SHOWN = 10


def chosen_queues(catalog: Catalog, options: ReadOptions) -> list[QueueKey]:
    """Take a look at the brokers and return the queues to read. Raises `OptionError` for a missing topic or queue."""
    found, chosen = catalog.queues(), options.topics
    if chosen.queues:
        assigned = set(_resolve(catalog, OPTION["assign"], chosen.queues).values())
        _refuse_unknown(
            OPTION["assign"], [f"{key.label} of {key.topic}" for key in sorted(assigned - set(found))], found
        )
        return [key for key in found if key in assigned]
    topics = {key.topic for key in found}
    _refuse_unknown(OPTION["subscribe"], [name for name in chosen.names if name not in topics], found)
    return found


def starting_offsets(catalog: Catalog, options: ReadOptions) -> dict[QueueKey, int]:
    """Return the first offsets of a new stream. Raises `OptionError`."""
    keys = chosen_queues(catalog, options)
    offsets = _offsets(catalog, options.starting, "starting", keys)
    return {key: _start(options, key, offsets[key], catalog.bounds(key)) for key in keys}


def read_spans(
    catalog: Catalog, options: ReadOptions, wants: Callable[[QueueKey], bool] = lambda key: True
) -> list[QueueSpan]:
    """Return the spans of a batch read in the queues that a query `wants`. Raises `OptionError`, `DataLossError`."""
    keys = chosen_queues(catalog, options)
    begins = _offsets(catalog, options.starting, "starting", keys)
    ends = _offsets(catalog, options.ending, "ending", keys)
    spans, losses = [], []
    for key in filter(wants, keys):
        first, last = catalog.bounds(key)
        begin, end = _start(options, key, begins[key], (first, last)), ends[key]
        if end is None or end == LATEST:
            end = last
        for name, offset in (("startingOffsets", begin), ("endingOffsets", end)):
            if not first <= offset <= last:
                losses.append(
                    f"queue {key.label} of {key.topic}: {name} asks for offset {offset}, "
                    f"the queue has {first} to {last}"
                )
        begin, end = min(max(begin, first), last), min(max(end, first), last)
        if begin < end:
            spans.append(QueueSpan(key, begin, end))
    if losses:
        text = "; ".join(losses[:NAMES_SHOWN]) + ("; ..." if len(losses) > NAMES_SHOWN else "")
        if options.fail_on_data_loss:
            raise DataLossError(f"{text}. failOnDataLoss=false reads the offsets that exist")
        log.warning("%s. The read covers the offsets that exist", text)
    return spans


def _start(options: ReadOptions, key: QueueKey, offset: int | None, bounds: tuple[int, int]) -> int:
    """Return the first offset of a queue by its starting limit. None means that no message is so late."""
    first, end = bounds
    if offset is None and options.late_start == "error":
        raise OptionError(
            f"queue {key.label} of {key.topic} has no message stored at or after the time asked for; "
            "startingOffsetsByTimestampStrategy=latest starts it at its end"
        )
    if offset is None or offset == LATEST:
        return end
    return first if offset == EARLIEST else offset


def _offsets(catalog: Catalog, limit: Limit, side: str, keys: Sequence[QueueKey]) -> dict[QueueKey, int | None]:
    """Return the limit of each queue: an offset, EARLIEST or LATEST, None if no message is as late as its time."""
    if isinstance(limit, Everywhere):
        return dict.fromkeys(keys, limit.offset)
    if isinstance(limit, SinceTime):
        return {key: catalog.offset_at(key, limit.time_ms) for key in keys}
    if isinstance(limit, QueueTimes):
        times = _by_queue(catalog, OPTION[f"{side}OffsetsByTimestamp"], limit.times_ms, keys)
        return {key: catalog.offset_at(key, times[key]) for key in keys}
    return dict(_by_queue(catalog, OPTION[f"{side}Offsets"], limit.offsets, keys))


def _by_queue(
    catalog: Catalog, option: Option, given: Mapping[QueueName, int], keys: Sequence[QueueKey]
) -> dict[QueueKey, int]:
    """Return the numbers of an option by queue. It must name every queue of the read, and no other."""
    resolved = _resolve(catalog, option, list(given))
    numbers = {key: given[name] for name, key in resolved.items()}
    missing = [f"{key.label} of {key.topic}" for key in keys if key not in numbers]
    if missing:
        raise OptionError(f"option {option.name} does not name {_shown(missing)}; accepted: {option.form}")
    _refuse_unknown(option, [f"{key.label} of {key.topic}" for key in sorted(set(numbers) - set(keys))], keys)
    return numbers


def _resolve(catalog: Catalog, option: Option, names: Sequence[QueueName]) -> dict[QueueName, QueueKey]:
    """Return the queues by their names in an option. A bare queue id means the only broker."""
    brokers = [place.name for place in catalog.brokers()]
    resolved = {}
    for name in names:
        if name.broker is None and len(brokers) != 1:
            raise OptionError(
                f"option {option.name}: queue {name.label} of {name.topic} may be on any of {_shown(brokers)}; "
                f"accepted: {option.form}"
            )
        resolved[name] = QueueKey(name.topic, name.broker or brokers[0], name.queue_id)
    if len(set(resolved.values())) != len(resolved):
        raise OptionError(f"option {option.name} names a queue twice, with and without its broker")
    return resolved


def _refuse_unknown(option: Option, unknown: Sequence[str], found: Sequence[QueueKey]) -> None:
    if unknown:
        there = sorted({key.topic for key in found}) or ["none of them"]
        raise OptionError(
            f"option {option.name}: {_shown(unknown)} not found among the queues that can be read; topics found: "
            f"{_shown(there)} (system, retry and dead-letter topics need includeSystemTopics=true)"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (
        f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    )
