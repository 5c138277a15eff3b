"""What a slave does with its master's tables: topics, groups and offsets become what the master says.

A table is taken over whole: what the master does not have goes. Beyond stock, an offset that a consumer committed to
the slave itself while it had no master is not overwritten by an older one: the master gets it (`newer_offsets`).
"""

from __future__ import annotations

from ringmq.broker.core import Broker
from ringmq.broker.tables.offsets import CommitKey
from ringmq.ha.slave_sync import ConsumerOffsets
from ringmq.ipc.errors import PlaneFullError
from ringmq.remoting.admin_bodies import GroupConfigTable
from ringmq.remoting.config_beans import TopicConfigTable
from ringmq.remoting.errors import RequestError


def take_topics(broker: Broker, table: TopicConfigTable, now_ms: int) -> list[str]:
    """Make the topics those of the master; lines for the operator about what could not be taken."""
    refused = []
    gone = [topic.topic_name for topic in broker.topics if topic.topic_name not in table.topics]
    gone = [name for name in gone if not broker.topics.is_system(name)]
    if gone:
        broker.offsets.forget_topics(gone)
    for name in gone:
        broker.topics.delete(name, now_ms)
        broker.deletions.add(name, now_ms)
    for config in table.topics.values():
        if config.topic_name in broker.deletions:
            continue  # made again on the master: the next pass brings it, when its old queues are gone
        try:
            broker.topics.put(config, now_ms)
        except (RequestError, PlaneFullError) as error:
            refused.append(f"topic {config.topic_name} of the master: {error}")
    broker.topics.data_version = table.data_version.copy()
    return refused


def take_groups(broker: Broker, table: GroupConfigTable, now_ms: int) -> list[str]:
    """Make the groups those of the master; lines for the operator about what could not be taken."""
    refused = []
    for name in [group for group in broker.groups.names() if group not in table.groups]:
        broker.groups.delete(name, now_ms)
    for config in table.groups.values():
        if broker.groups.get(config.group_name) != config:
            try:
                broker.groups.put(config, now_ms)
            except (RequestError, PlaneFullError) as error:
                refused.append(f"group {config.group_name} of the master: {error}")
    broker.groups.replace_forbidden(table.forbidden, now_ms)
    broker.groups.data_version = table.data_version.copy()
    return refused


def newer_offsets(broker: Broker, offsets: ConsumerOffsets) -> dict[CommitKey, int]:
    """Offsets that consumers have committed here and that are ahead of the master's; the others are forgotten."""
    newer = {}
    for key in list(broker.offsets.committed_here):
        group, topic, queue_id = key
        own = broker.offsets.get(group, topic, queue_id)
        if own > offsets.offsets.get((topic, group), {}).get(queue_id, -1):
            newer[key] = own
        else:
            broker.offsets.committed_here.discard(key)
    return newer


def take_offsets(broker: Broker, offsets: ConsumerOffsets, now_ms: int) -> None:
    """Set every offset that the master has, but for those that are ahead here. Raises PlaneFullError."""
    for (topic, group), queues in offsets.offsets.items():
        for queue_id, offset in queues.items():
            if (group, topic, queue_id) in broker.offsets.committed_here:
                continue
            if broker.offsets.get(group, topic, queue_id) != offset:
                broker.offsets.take_over(group, topic, queue_id, offset, now_ms)
    broker.offsets.data_version = offsets.data_version.copy()
