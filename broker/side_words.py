"""Words of shared memory that depend on the side of the broker, beside the tenure itself."""

from __future__ import annotations

import os

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import waits_for_replicas
from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import follows_master
from ringmq.native import lib


def show_side(plane: Plane, config: BrokerConfig) -> None:
    """Store the words of the tenure that is published. No worker may append meanwhile.

    The policy by which the log becomes readable is the last one: its limit must be true before it counts.
    """
    follows = follows_master(plane.watermarks)
    settings = plane.header.settings
    settings.sync_replication = not follows and waits_for_replicas(config)
    settings.memory_window_bytes = memory_window_bytes(config, follows=follows)
    plane.watermarks.confirm_policy = confirm_policy_of(config, follows=follows)


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
