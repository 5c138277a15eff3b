"""The queue of each row: by its column partition, by its sharding key's hash, or any of its topic's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ringmq.client import MessageQueue
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.errors import RouteError
from ringmq.spark_bridge.sink.errors import RowError
from ringmq.spark_bridge.sink.row_encoder import sharding_hashes

ANY_QUEUE = -1


@dataclass(frozen=True, slots=True)
class Target:
    """A topic and the index of a queue in its list of queues. ANY_QUEUE leaves the choice to the sender."""

    topic: str
    queue: int


class TopicQueues:
    """The write queues of topics, looked up once each. With a `broker`, only its own."""

    def __init__(self, find: Callable[[str], TopicRoute], broker: str | None) -> None:
        self._find = find
        self._broker = broker
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}

    def of(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all possible queues of the topic's rows. Raises RouteError without any."""
        known = self._queues.get(topic)
        if known is not None:
            return known
        queues = tuple(queue for queue in self._find(topic).write_queues if self._broker in (None, queue.broker_name))
        if not queues:
            where = "no broker" if self._broker is None else f"broker {self._broker}"
            raise RouteError(f"{where} takes messages of topic {topic} now: create it there, or wait for its broker")
        self._queues[topic] = queues
        return queues

    def single_broker(self, topic: str) -> None:
        """Raise RouteError if a bare queue id is ambiguous."""
        brokers = sorted({queue.broker_name for queue in self.of(topic)})
        if len(brokers) > 1:
            raise RouteError(
                f"topic {topic} has queues on {', '.join(brokers)}: column partition needs option broker to say whose"
            )


def rows_by_target(
    batch: pa.RecordBatch, topic_option: str | None, queues: TopicQueues
) -> Iterator[tuple[Target, NDArray[np.int32]]]:
    """Yield (target, indexes of its rows in order) of every target in the batch. Raises RowError and RouteError."""
    for topic, index in _rows_by_topic(batch, topic_option):
        names = batch.schema.names
        if "partition" in names:
            chosen = _by_partition(batch.column("partition"), index, topic, queues)
        elif "shardingKey" in names:
            chosen = _by_sharding_key(batch.column("shardingKey"), index, len(queues.of(topic)))
        else:
            yield Target(topic, ANY_QUEUE), index
            continue
        for queue in np.unique(chosen):
            yield Target(topic, int(queue)), index[chosen == queue]


def _rows_by_topic(batch: pa.RecordBatch, topic_option: str | None) -> Iterator[tuple[str, NDArray[np.int32]]]:
    every = np.arange(batch.num_rows, dtype=np.int32)
    if topic_option is not None:
        yield topic_option, every
        return
    topics = batch.column("topic")
    if topics.null_count:
        row = int(np.flatnonzero(topics.is_null().to_numpy(zero_copy_only=False))[0])
        raise RowError(f"row {row} of its batch, column topic: null, and there is no option topic")
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        yield topic, every[codes == code]


def _by_partition(column: pa.Array, index: NDArray[np.int32], topic: str, queues: TopicQueues) -> NDArray[np.int32]:
    """Return the column's queue ids. Null leaves the choice."""
    queues.single_broker(topic)
    ids = [queue.queue_id for queue in queues.of(topic)]
    chosen = column.fill_null(ANY_QUEUE).to_numpy()[index]
    wrong = np.flatnonzero((chosen != ANY_QUEUE) & ~np.isin(chosen, ids))
    if len(wrong):
        row = int(index[wrong[0]])
        raise RowError(
            f"row {row} of its batch, column partition: {int(chosen[wrong[0]])} is no queue of topic {topic}, "
            f"which has {min(ids)} to {max(ids)}"
        )
    place = {queue_id: place for place, queue_id in enumerate(ids)} | {ANY_QUEUE: ANY_QUEUE}
    return np.array([place[int(queue_id)] for queue_id in chosen], np.int32)


def _by_sharding_key(column: pa.Array, index: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Return the remainders by the rule of `SelectMessageQueueByHash`: Java's, without sign. Null leaves the choice."""
    chosen = np.abs(np.fmod(sharding_hashes(column), np.int32(count)))[index]
    if column.null_count:
        chosen[column.is_null().to_numpy(zero_copy_only=False)[index]] = ANY_QUEUE
    return chosen


def spread(queues: Sequence[MessageQueue], number: int) -> MessageQueue:
    """Return a queue for the `number`th chunk without a fixed queue."""
    return queues[number % len(queues)]
