"""A slave's copy of its master's tables: topics, groups, offsets and request modes become those of the master.

A table is replaced as a whole: entries that the master does not have are removed. An entry that the tables here cannot
hold is left out and named. Beyond stock, two entries of consumers stay:

- An offset that a consumer has committed to the slave while it had no master is not overwritten by an older one. The
  master gets it (`newer_offsets`).
- A group with a consumer or with such an offset is not removed. The consumer makes it at both brokers, and the answer
  of the master may be older. Without the group the slave would refuse what the consumer commits next.
"""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.tables.consumers import ConsumerTable
from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.file_entries import NAME_CHARS_SHOWN
from ringmq.broker.tables.groups import GroupTable, check_group_name
from ringmq.broker.tables.offsets import SEPARATOR, CommitKey, OffsetTable, check_names, check_offset
from ringmq.broker.tables.request_modes import RequestModeTable, possible_modes
from ringmq.broker.tables.topics import TopicTable
from ringmq.ha.slave_sync import ConsumerOffsets, RequestModes
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.config_beans import TopicConfigTable
from ringmq.remoting.errors import RequestError


class SlaveTables(Struct, frozen=True):
    """The tables that follow the master."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    modes: RequestModeTable
    deletions: Deletions
    consumers: ConsumerTable

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
        for name, config in table.topics.items():
            config.topic_name = name  # as at the next start: the key of an entry is its name
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
        committing = {group for group, _, _ in self.offsets.committed_here}
        for name in [group for group in self.groups.names() if group not in table.groups]:
            if name not in committing and self.consumers.get(name) is None:
                self.groups.delete(name, now_ms)
        for name, config in table.groups.items():
            config.group_name = name
            if self.groups.get(config.group_name) != config:
                try:
                    self.groups.put(config, now_ms)
                except (RequestError, PlaneFullError) as error:
                    refused.append(f"group {config.group_name} of the master: {error}")
        forbidden = {}
        for group, bits in table.forbidden.items():
            try:
                check_group_name(group)
            except RequestError as error:
                refused.append(f"forbidden topics of the master: {error}")
            else:
                forbidden[group] = bits
        self.groups.replace_forbidden(forbidden, now_ms)
        self.groups.data_version = table.data_version.copy()
        return refused

    def take_modes(self, table: RequestModes) -> list[str]:
        """Replace the request modes by those of the master. Returns log lines about modes that are left out."""
        refused = [f"request modes of the master: {line}" for line in table.left_out]
        self.modes.replace(
            possible_modes(table.modes, lambda line: refused.append(f"request modes of the master: {line}"))
        )
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

    def take_offsets(self, offsets: ConsumerOffsets, now_ms: int) -> list[str]:
        """Set every offset of the master, except those that are ahead here. Returns log lines about offsets that could
        not be set. The others count, or a promotion would send all groups back."""
        refused = [f"offsets of the master: {line}" for line in offsets.left_out]
        for (topic, group), queues in offsets.offsets.items():
            name = f"{topic}{SEPARATOR}{group}"[:NAME_CHARS_SHOWN]
            try:
                check_names(topic, group)
            except RequestError as error:
                refused.append(f"offsets of {name!r} of the master: {error}")
                continue
            for queue_id, offset in queues.items():
                try:
                    self._take_offset((group, topic, queue_id), offset, now_ms)
                except (ValueError, PlaneFullError) as error:
                    refused.append(f"the offset of {name!r} of the master, queue {queue_id}: {error}")
        self.offsets.data_version = offsets.data_version.copy()
        return refused

    def _take_offset(self, key: CommitKey, offset: int, now_ms: int) -> None:
        """Raises ValueError for numbers that no file of offsets may hold, and PlaneFullError."""
        if key not in self.offsets.committed_here and self.offsets.get(*key) != offset:
            check_offset(key[2], offset)
            self.offsets.restore(*key, offset, now_ms)
