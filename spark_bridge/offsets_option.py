"""The begin and end of a read in options: words, JSON by queue, times. Parsing only, without a look at a store.

The JSON forms are those of Spark's Kafka source, with `broker:queue` for a partition, as queue ids count per broker.
A bare queue id stands for the only broker. With several brokers it is an error (`ringmq.spark_bridge.limits`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ringmq.spark_bridge.option_table import Option

EARLIEST = -2
LATEST = -1


class QueueName(NamedTuple):
    """A queue as an option names it. `broker` is None for a bare queue id."""

    topic: str
    broker: str | None
    queue_id: int

    @property
    def label(self) -> str:
        """The text of the option."""
        return str(self.queue_id) if self.broker is None else f"{self.broker}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST for every queue."""

    offset: int


AT_EARLIEST = Everywhere(EARLIEST)
AT_LATEST = Everywhere(LATEST)


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """An offset (or EARLIEST, LATEST) for each queue."""

    offsets: Mapping[QueueName, int]


@dataclass(frozen=True, slots=True)
class SinceTime:
    """The first offset stored at or after a time, in every queue."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """The first offset stored at or after a time, with a time for each queue."""

    times_ms: Mapping[QueueName, int]


Limit = Everywhere | QueueOffsets | SinceTime | QueueTimes


def parse_offsets(option: Option, text: str, ends: tuple[int, ...]) -> Everywhere | QueueOffsets:
    """Return the value of `earliest`, `latest` or JSON. Raises `OptionError`.

    `ends` are the accepted ones of EARLIEST and LATEST, as word or as number.
    """
    end = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if end is not None:
        if end not in ends:
            raise option.refusal(text)
        return Everywhere(end)
    offsets = dict(_queue_numbers(option, text))
    for name, offset in offsets.items():
        if offset < 0 and offset not in ends:
            raise option.refusal(text, f"has {offset} for queue {name.label} of {name.topic}")
    return QueueOffsets(offsets)


def parse_times(option: Option, text: str) -> QueueTimes:
    """Return a time in ms for each queue of the JSON. Raises `OptionError`."""
    times = dict(_queue_numbers(option, text))
    for name, time_ms in times.items():
        if time_ms < 0:
            raise option.refusal(text, f"has {time_ms} for queue {name.label} of {name.topic}")
    return QueueTimes(times)


def parse_assignment(option: Option, text: str) -> tuple[QueueName, ...]:
    """Return the queues in JSON with a list of queues for each topic. Raises `OptionError`."""
    names: list[QueueName] = []
    for topic, queues in _object(option, text, _json(option, text)).items():
        if not isinstance(queues, list) or not queues:
            raise option.refusal(text, f"has no list of queues for {topic}")
        for queue in queues:
            if isinstance(queue, bool) or not isinstance(queue, int | str):
                raise option.refusal(text, f"has {queue!r} for a queue of {topic}")
            names.append(_queue_name(option, text, topic, str(queue)))
    if len(set(names)) != len(names):
        raise option.refusal(text, "names a queue twice")
    return tuple(names)


def _queue_numbers(option: Option, text: str) -> Iterator[tuple[QueueName, int]]:
    for topic, by_queue in _object(option, text, _json(option, text)).items():
        for label, number in _object(option, text, by_queue).items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise option.refusal(text, f"has {number!r} for queue {label} of {topic}")
            if number >= 1 << 63:
                raise option.refusal(text, f"has {number} for queue {label} of {topic}, more than 63 bits")
            yield _queue_name(option, text, topic, label), number


def _json(option: Option, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except ValueError as error:
        raise option.refusal(text, f"is no JSON ({error})") from None


def _object(option: Option, text: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise option.refusal(text, f"has {json.dumps(value)} in place of an object with entries")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _queue_name(option: Option, text: str, topic: str, label: str) -> QueueName:
    broker, colon, queue = label.rpartition(":")
    if not (queue.isascii() and queue.isdigit()) or int(queue) > 0x7FFFFFFF or (colon and not broker):
        raise option.refusal(text, f"has {label!r} for a queue of {topic}; a queue is broker:queue, as broker-a:0")
    return QueueName(topic, broker or None, int(queue))
