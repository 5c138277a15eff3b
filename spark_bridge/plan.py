"""Which ranges of the commit log to read. No Spark.

Two promises meet here. Nothing at or beyond the readable bound is planned: the confirm offset of the live owner, from
its watermark page, or without a live owner the end of the ConsumeQueues. And every range begins and ends at a record,
so that ranges can be read apart: ConsumeQueue units name such places.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringmq.client.topics import is_user_topic
from ringmq.ipc.watermark import read_watermarks
from ringmq.spark_bridge.options import OptionError, ReadOptions, parse_options
from ringmq.spark_bridge.schema import default_columns
from ringmq.store import layout
from ringmq.store.consume_queue import ConsumeQueue, first_index
from ringmq.store.guess import config_without_index
from ringmq.store.message_store import MessageStore

RANGE_BYTES = 128 << 20  # what Spark gives a task of a file source
BORDER_QUEUES_MAX = 16  # queues asked for a record near a cut: enough to come close, bounded for 10,000 topics


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes [`begin`, `end`) of the commit log, all in the file `path` that begins at `file_start`."""

    path: str
    file_start: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One action's work. `topics` are those whose rows count; a record at or behind `trust_offset` also counts when its
    topic is a user topic that has no queue on disk yet (it was made since)."""

    ranges: tuple[LogRange, ...]
    topics: frozenset[str]
    trust_offset: int
    readable_offset: int


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a batch read or a stream with these options. Raises `OptionError`."""
    given = parse_options(options, streaming=None)
    return given.columns or default_columns(headers=given.include_headers)


def plan_read(options: ReadOptions) -> ReadPlan:
    """Decide what to read. Called on the driver, once per action; a growing log gives each action its own end."""
    if options.store is None:
        raise OptionError("option store (a folder that holds commitlog) is missing")
    store = MessageStore(config_without_index(options.store))
    # the bound first: what the queues show afterwards is at least as new
    watermarks = read_watermarks(options.store)
    bound = watermarks.confirm_offset if watermarks.live else store.queue_end()
    trust_offset = min(watermarks.dispatched_offset, bound) if watermarks.live else bound
    on_disk = {name.topic for name in store.queue_names()}
    topics = {topic for topic in on_disk if options.include_system_topics or is_user_topic(topic)}
    topics = {topic for topic in topics if options.topics.wants(topic)}
    return ReadPlan(tuple(_ranges(store, options, bound)), frozenset(topics), trust_offset, bound)


def wants_topic(plan: ReadPlan, options: ReadOptions, topic: str, commit_log_offset: int) -> bool:
    """Whether rows of `topic` count."""
    if topic in plan.topics:
        return True
    if commit_log_offset < plan.trust_offset or not options.topics.wants(topic):
        return False
    return options.include_system_topics or is_user_topic(topic)


def _ranges(store: MessageStore, options: ReadOptions, bound: int) -> Iterator[LogRange]:
    files = store.commit_log.files
    begin = store.commit_log.min_offset
    if begin >= bound:
        return
    range_bytes = max(1, min(RANGE_BYTES, -(-(bound - begin) // (options.min_partitions or 1))))
    queues = _border_queues(store)
    for file_start in files.starts:
        file_end = file_start + files.file_bytes
        at, last = max(begin, file_start), min(bound, file_end)
        path = _path_of(files.directories, file_start)
        while at < last:
            cut = last if last - at <= range_bytes else min(last, _border_at(queues, at + range_bytes, last))
            yield LogRange(str(path), file_start, at, cut)
            at = cut


def _path_of(directories: tuple[Path, ...], file_start: int) -> Path:
    name = layout.file_name(file_start)
    return next((d / name for d in directories if (d / name).exists()), directories[0] / name)


def _border_queues(store: MessageStore) -> list[tuple[ConsumeQueue, int, int]]:
    """Up to 16 queues with most units, as (queue, first, end)."""
    queues: list[tuple[ConsumeQueue, int, int]] = []
    for name in store.queue_names():
        queue = None if name.is_batch else store.queue(name.topic, name.queue_id)
        if isinstance(queue, ConsumeQueue):
            end = queue.max_offset(1 << 62)
            first = queue.min_offset(store.commit_log.min_offset, end)
            if end > first:
                queues.append((queue, first, end))
    queues.sort(key=lambda entry: entry[1] - entry[2])
    return queues[:BORDER_QUEUES_MAX]


def _border_at(queues: list[tuple[ConsumeQueue, int, int]], target: int, end: int) -> int:
    """The first place at or behind `target` where some queue knows a record; `end` when none does."""
    best = end
    for queue, first, last in queues:

        def is_behind(index: int, queue: ConsumeQueue = queue) -> bool:
            unit = queue.unit(index)
            return unit is None or unit.commit_log_offset >= target

        index = first_index(first, last, is_behind)
        unit = queue.unit(index) if index < last else None
        if unit is not None:
            best = min(best, unit.commit_log_offset)
    return best
