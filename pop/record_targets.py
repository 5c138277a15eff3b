"""The queues to which records of open messages go: those of the revive topic, and the timer's."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.remoting import names
from ringmq.services.topics import Topics


class Targets(Struct, frozen=True):
    """Queues: topic id, queue slot, queue id. `timer`: None if timers are off, and records go to the revive topic.

    `revive`: by the queue that a receipt names. Another queue stands in the place of one that is missing."""

    revive_topic: str
    revive: list[tuple[int, int, int]]
    timer: tuple[int, int, int] | None
    precision_ms: int


def targets_of(plane: Plane, config: BrokerConfig) -> Targets | None:
    """The queues of this broker. None: the revive topic has none."""
    topics = Topics(plane)
    topic = names.revive_topic(config.broker_cluster_name)
    found = [topics.queue(topic, queue_id) for queue_id in range(config.revive_queue_num)]
    timer = topics.queue(names.WHEEL_TIMER_TOPIC, 0) if config.timer_wheel_enable else None
    there = [queue for queue in found if queue is not None]
    if not there:
        return None
    revive = [queue or there[queue_id % len(there)] for queue_id, queue in enumerate(found)]
    return Targets(topic, revive, timer, config.timer_precision_ms)
