"""A slave's copy of its master's tables: topics, groups and offsets become those of the master.

A table is replaced as a whole: entries that the master does not have are removed. Beyond stock, an offset that a
consumer has committed to the slave while it had no master is not overwritten by an older one. The master gets it
(`newer_offsets`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.offsets import CommitKey, OffsetTable
from ringmq.broker.tables.topics import TopicTable
from ringmq.ha.slave_sync import ConsumerOffsets
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.config_beans import TopicConfigTable
from ringmq.remoting.errors import RequestError


@dataclass(frozen=True, slots=True)
class SlaveTables:
    """The tables that follow the master."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    deletions: Deletions

    def take_topics(self, table: TopicConfigTable, now_ms: int) -> list[str]:
        """Replace the topics by those of the master. Returns log lines about topics that could not be made."""
        refused = []
        gone = [topic.topic_name for topic in self.topics if topic.topic_name not in table.topics]
        gone = [name for name in gone if not self.topics.is_system(name)]
        if gone:
            self.offsets.forget_topics(gone)
        for name in gone:
            self.topics.delete(name, now_ms)
            self.deletions.add(name, now_ms)
        for config in table.topics.values():
            if config.topic_name in self.deletions:
                continue  # made again on the master: the next pass brings it, when its old queues are gone
            try:
                self.topics.put(config, now_ms)
            except (RequestError, PlaneFullError) as error:
                refused.append(f"topic {config.topic_name} of the master: {error}")
        self.topics.data_version = table.data_version.copy()
        return refused

    def take_groups(self, table: GroupConfigTable, now_ms: int) -> list[str]:
        """Replace the groups by those of the master. Returns log lines about groups that could not be made."""
        refused = []
        for name in [group for group in self.groups.names() if group not in table.groups]:
            self.groups.delete(name, now_ms)
        for config in table.groups.values():
            if self.groups.get(config.group_name) != config:
                try:
                    self.groups.put(config, now_ms)
                except (RequestError, PlaneFullError) as error:
                    refused.append(f"group {config.group_name} of the master: {error}")
        self.groups.replace_forbidden(table.forbidden, now_ms)
        self.groups.data_version = table.data_version.copy()
        return refused

    def newer_offsets(self, offsets: ConsumerOffsets) -> dict[CommitKey, int]:
        """Offsets that consumers have committed here and that are ahead of the master's. The others are forgotten."""
        newer = {}
        for key in list(self.offsets.committed_here):
            group, topic, queue_id = key
            own = self.offsets.get(group, topic, queue_id)
            if own > offsets.offsets.get((topic, group), {}).get(queue_id, -1):
                newer[key] = own
            else:
                self.offsets.committed_here.discard(key)
        return newer

    def take_offsets(self, offsets: ConsumerOffsets, now_ms: int) -> None:
        """Set every offset of the master, except those that are ahead here. Raises PlaneFullError."""
        for (topic, group), queues in offsets.offsets.items():
            for queue_id, offset in queues.items():
                if (group, topic, queue_id) in self.offsets.committed_here:
                    continue
                if self.offsets.get(group, topic, queue_id) != offset:
                    self.offsets.restore(group, topic, queue_id, offset, now_ms)
        self.offsets.data_version = offsets.data_version.copy()
