"""Groups and topics that messages sent back need (`createTopicInSendMessageBackMethod`), and consoles of groups."""

from __future__ import annotations

import contextlib

from msgspec import Struct

from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.topics import TopicTable, planned_for_group
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting import names
from ringmq.remoting.config_beans import SubscriptionGroupConfig, TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import TopicSysFlag
from ringmq.store.record_values import is_topic_name

DEAD_LETTER_QUEUES = 1


class RetryTopics(Struct, frozen=True):
    """Makes what is missing, within the limits of entries for clients' names."""

    topics: TopicTable
    deletions: Deletions
    new_entries: NewEntries

    def make(self, asked: RetryAsk, now_ms: int) -> None:
        """Make the group, its retry topic and its dead letter topic.

        Nothing is made for a group that clients may not make, or without retry queues. Raises RequestError and
        PlaneFullError.
        """
        group = self.new_entries.group_of(asked.group)
        if group is None or group.retry_queue_nums <= 0:
            return
        sys_flag = int(TopicSysFlag.UNIT_SUB) if asked.unit_mode else 0
        planned = [self._planned(names.retry_topic(asked.group), group.retry_queue_nums, sys_flag)]
        if asked.dead:
            planned.append(self.planned_dead_letter(asked.group))
        self.new_entries.make(group, planned, now_ms)

    def make_for_consumer(self, group: SubscriptionGroupConfig, sys_flag: int, order: bool, now_ms: int) -> None:
        """Make the group and its retry topic for a consumer that registers.

        While the topic's old folder is being removed, the group is made alone, and a later heartbeat makes the topic. A
        group of a file or a master may have so long a name that its retry topic has none: the group consumes without
        one. Raises RequestError and PlaneFullError.
        """
        topic, planned = names.retry_topic(group.group_name), []
        if topic not in self.topics and topic not in self.deletions and is_topic_name(topic.encode()):
            planned.append(planned_for_group(topic, group.retry_queue_nums, sys_flag, order=order))
        self.new_entries.make(group, planned, now_ms)

    def make_for_offsets(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Make the retry topic of a group that gets offsets, as the heartbeat of a consumer does.

        A program may commit to a group without a heartbeat. `mqadmin consumerProgress` finds the brokers of a group by
        the route of its retry topic alone. If the topic cannot be made, the offset counts all the same.
        """
        topic = names.retry_topic(config.group_name)
        if topic not in self.topics and config.retry_queue_nums > 0:
            with contextlib.suppress(RequestError, PlaneFullError):
                self.new_entries.make(None, [self._planned(topic, config.retry_queue_nums, 0)], now_ms)

    def planned_dead_letter(self, group: str) -> TopicConfig:
        """The dead letter topic of a group, to be made. Raises RequestError if it is missing and cannot be made now."""
        return self._planned(names.dlq_topic(group), DEAD_LETTER_QUEUES, 0)

    def _planned(self, topic: str, queues: int, sys_flag: int) -> TopicConfig:
        if topic not in self.topics:
            self.deletions.check_gone(topic)
            self.new_entries.refuse_when_short(f"topic {topic}")
        return planned_for_group(topic, queues, sys_flag)
