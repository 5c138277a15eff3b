"""The queue of a window's messages, and the queues of their copies. One decision for each window of a batch."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.pop.window_names import Key
from ringmq.remoting import names
from ringmq.remoting.flags import Perm
from ringmq.services.topics import NO_LIMIT, Topics

NAME_BYTES_MAX = 255
INTERVALS_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Time until a copy that could not be stored is tried again, by the number of tries before. Those of stock
(`PopReviveService.ckRewriteIntervalsInSeconds`)."""


class Copy(Struct, frozen=True):
    """Copies are made. A queue: topic id, queue slot, queue id."""

    source_slot: int
    again: tuple[int, int, int]
    dead: tuple[int, int, int] | None
    """None: there is no topic of dead letters yet."""
    times_max: int
    """Messages that have come again so often become dead letters."""


class Make(Struct, frozen=True):
    """Control has to make a topic first."""

    group: str
    topic: str


class Gone(Struct, frozen=True):
    """The group or the topic is gone, and its messages with it."""


class Fail(Struct, frozen=True):
    """No copy can be stored now."""

    reason: str


Aim = Copy | Make | Gone | Fail


class CopyTargets:
    """Looks up the targets, each time again, because control may change them at any time."""

    def __init__(self, topics: Topics, config: Callable[[], BrokerConfig]) -> None:
        self._topics, self._config = topics, config

    def of(self, name: Key, queue_slot: int) -> Aim:
        """The decision for a window. `queue_slot`: of its queue when the window was made, or when pop started."""
        config = self._config()
        source = self._topics.queue(name.topic, name.queue_id)
        retry = self._topics.group_retry(name.group)
        if source is None or source[1] != queue_slot or retry is None:
            return Gone()
        topic = retry_topic(name, is_v2=config.enable_retry_topic_v2)
        if len(topic.encode()) > NAME_BYTES_MAX:
            return Fail(f"the name of topic {topic} has more than {NAME_BYTES_MAX} bytes")
        found, queue = self._topics.find(topic), self._topics.queue(topic, 0)
        if found is None or queue is None:
            return Make(name.group, topic)
        if not found.perm & Perm.WRITE:
            return Fail(f"topic {topic} has no permission to write")
        if not config.pop_dead_letter:
            return Copy(source[1], queue, None, NO_LIMIT)
        return Copy(source[1], queue, self._topics.queue(names.dlq_topic(name.group), 0), retry.times_max)


def retry_topic(name: Key, *, is_v2: bool) -> str:
    """The topic in which messages of a window come again. Those of a topic of retries stay in it."""
    if names.is_retry_topic(name.topic):
        return name.topic
    return names.pop_retry_topic(name.group, name.topic, is_v2=is_v2)


def origin_topic(name: Key) -> str:
    """The topic to which a message was sent that the window holds."""
    for is_v2 in (True, False):
        prefix = names.pop_retry_topic(name.group, "", is_v2=is_v2)
        if name.topic.startswith(prefix):
            return name.topic.removeprefix(prefix)
    return name.topic


def interval_ms(attempts: int) -> int:
    """Time until the next try of a copy that could not be stored `attempts` times before."""
    return INTERVALS_S[min(attempts, len(INTERVALS_S) - 1)] * 1000
