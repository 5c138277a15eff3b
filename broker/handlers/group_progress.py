"""The progress of a group on a topic: per queue its end, both offsets of the group, and the time of a message."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.offsets import OffsetTable
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.broker.tables.publication import PlaneTables
from ringmq.broker.tables.statistics import Statistics
from ringmq.remoting.admin_bodies import ConsumeOffset, ConsumeStats
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.message_queue import MessageQueue

QUEUES_A_STEP = 32
"""Queues of one step. Each reads the time of a message from the store."""


class GroupProgress(Struct, frozen=True):
    """The tables that the progress is made of."""

    live: LiveConfig
    store: StoreProtocol
    tables: PlaneTables
    offsets: OffsetTable
    statistics: Statistics

    def add(self, stats: ConsumeStats, group: str, config: TopicConfig) -> Steps[None]:
        """Add the queues of a topic, and the messages per second that the group has got of it in the last minute."""
        topic = config.topic_name
        for queue_id in range(config.read_queue_nums):
            if queue_id % QUEUES_A_STEP == 0:
                yield
            state = self.tables.queue(topic, queue_id)
            high = 0 if state is None else int(state.max_offset)
            offset = max(0, self.offsets.get(group, topic, queue_id))
            last_ms = max(0, self.store.store_time(topic, queue_id, offset - 1)) if offset > 0 else 0
            pulled = max(offset, self.offsets.pulled(group, topic, queue_id))
            open_messages = self.offsets.open_messages(group, topic, queue_id)
            queue = MessageQueue(topic, self.live.config.broker_name, queue_id)
            stats.offsets[queue] = ConsumeOffset(high, offset, pulled, last_ms, open_messages)
        got = self.statistics.gets(topic, group, of_bytes=False)
        if got is not None:
            stats.consume_tps += got[0].tps
