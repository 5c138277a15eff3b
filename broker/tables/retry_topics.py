"""Groups and topics that messages sent back need (`createTopicInSendMessageBackMethod`), and consoles of groups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ringmq.broker.requests.retry_ask import RetryAsk
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.new_entries import NewEntries
from ringmq.broker.tables.topics import TopicTable
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting import names
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.errors import RequestError
from ringmq.remoting.flags import TopicSysFlag

DEAD_LETTER_QUEUES = 1


@dataclass(frozen=True, slots=True)
class RetryTopics:
    """Makes what is missing, within the limits of entries for clients' names."""

    topics: TopicTable
    deletions: Deletions
    new_entries: NewEntries

    def make(self, asked: RetryAsk, now_ms: int) -> None:
        """Make the group, its retry topic and its dead letter topic.

        Nothing is made for a group that clients may not make, or without retry queues. Raises RequestError and
        PlaneFullError.
        """
        group = self.new_entries.find_group(asked.group, now_ms)
        if group is None or group.retry_queue_nums <= 0:
            return
        sys_flag = int(TopicSysFlag.UNIT_SUB) if asked.unit_mode else 0
        self._make(names.retry_topic(asked.group), group.retry_queue_nums, sys_flag, now_ms)
        if asked.dead:
            self.make_dead_letter(asked.group, now_ms)

    def make_for_offsets(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Make the retry topic of a group that gets offsets, as the heartbeat of a consumer does.

        A program may commit to a group without a heartbeat. `mqadmin consumerProgress` finds the brokers of a group by
        the route of its retry topic alone. If the topic cannot be made, the offset counts all the same.
        """
        topic = names.retry_topic(config.group_name)
        if topic not in self.topics and config.retry_queue_nums > 0:
            with contextlib.suppress(RequestError, PlaneFullError):
                self._make(topic, config.retry_queue_nums, 0, now_ms)

    def make_dead_letter(self, group: str, now_ms: int) -> None:
        """Make the dead letter topic of a group. Raises RequestError and PlaneFullError."""
        self._make(names.dlq_topic(group), DEAD_LETTER_QUEUES, 0, now_ms)

    def _make(self, topic: str, queues: int, sys_flag: int, now_ms: int) -> None:
        if topic in self.topics:
            return
        self.deletions.check_gone(topic)
        self.new_entries.refuse_when_short(f"topic {topic}")
        self.topics.create_for_group(topic, queues, sys_flag, False, now_ms)
