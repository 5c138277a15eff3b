"""Words of shared memory that depend on the side of the broker, beside the tenure itself."""

from __future__ import annotations

import os

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import waits_for_replicas
from ringmq.ha.replica_policy import ReplicaPolicy
from ringmq.ha.settings import HaSettings
from ringmq.ipc.plane import Plane
from ringmq.native import lib


def show_side(plane: Plane, config: BrokerConfig, *, follows: bool) -> None:
    """Store the words of a master, or of a slave if it `follows` one. No worker may append meanwhile.

    The policy by which the log becomes readable is the last one: its limit must be true before it counts.
    """
    settings = plane.header.settings
    settings.sync_replication = not follows and waits_for_replicas(config)
    settings.memory_window_bytes = memory_window_bytes(config, follows=follows)
    plane.watermarks.confirm_policy = confirm_policy_of(config, follows=follows)


def show_other_side(plane: Plane, config: BrokerConfig, *, follows: bool) -> None:
    """Store the words of the other side in a running broker. What is readable stays so.

    A master begins without a slave: nothing that it stores from now on is replicated yet.
    """
    marks = plane.watermarks
    marks.confirm_limit = plane.confirm_offset()
    if not follows:
        plane.header.first_append = marks.append_offset
        marks.replicated_offset = 0
        begin_without_slaves(plane, config)
    show_side(plane, config, follows=follows)


def begin_without_slaves(plane: Plane, config: BrokerConfig) -> None:
    """Set the state of a master without a slave. It holds until ha counts the slaves.

    Workers start side by side, so write may get sends before ha is up. A slave's log may be longer than this one. Then
    a send that is stored now takes the offset of a record that only the slave has.
    """
    policy = ReplicaPolicy.from_settings(HaSettings.from_properties(config.as_properties()))
    marks = plane.watermarks
    marks.replication_state = lib.RMQ_REPLICATION_OK if policy.accepts_alone else lib.RMQ_REPLICATION_LOST
    marks.in_sync_replicas = 1  # the master


def confirm_policy_of(config: BrokerConfig, *, follows: bool) -> int:
    """The words that limit the log for consumers. On a slave, the master's confirm offset is one of them."""
    flushed = config.flush_disk_type == "SYNC_FLUSH"
    policy = int(lib.RMQ_CONFIRM_FLUSHED if flushed else lib.RMQ_CONFIRM_APPENDED)
    return policy | int(lib.RMQ_CONFIRM_LIMITED) if follows or waits_for_replicas(config) else policy


def memory_window_bytes(config: BrokerConfig, *, follows: bool) -> int:
    """Bytes that count as in memory. A slave uses 10 % less than the property (stock's `BrokerStartup`)."""
    percent = config.access_message_in_memory_max_ratio
    if follows:
        percent = max(percent - 10, 0)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * percent // 100
