"""Relations between properties: the contradictions of a configuration, and changes that bring none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig, ConfigError, parse_value, property_table
from ringmq.broker.config.property_types import Value

if TYPE_CHECKING:
    from pathlib import Path


class Contradiction(Struct, frozen=True):
    """A contradiction, and the property to change first."""

    message: str
    name: str


def changed(config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """A copy with the known names of `values` set. Raises ConfigError, also if values contradict each other."""
    table = property_table()
    parsed: dict[str, Value] = {table[name][0]: parse_value(name, text) for name, text in values.items()}
    result: BrokerConfig = dataclasses.replace(config, **parsed)  # type: ignore[arg-type]
    for found in contradictions(result):
        raise ConfigError(found.message, found.name)
    return result


def contradictions(config: BrokerConfig) -> Iterator[Contradiction]:
    """The contradictions in `config`, of replication at most one of each kind."""
    if config.listen_port in (1, 2):
        yield Contradiction("listenPort = 1 or 2 leaves no room for the VIP port listenPort - 2", "listenPort")
    if config.listen_port == 65_535 and not config.ha_listen_port:
        yield Contradiction(
            "listenPort = 65535 leaves no room for haListenPort, by default listenPort + 1: set haListenPort",
            "listenPort",
        )
    record_max = config.max_message_size + 65_536
    if record_max > config.mapped_file_size_commit_log and config.max_message_size != 4_194_304:
        yield Contradiction(
            f"maxMessageSize = {config.max_message_size} with its 65536 bytes of overhead does not fit into "
            f"mappedFileSizeCommitLog = {config.mapped_file_size_commit_log}",
            "maxMessageSize",
        )
    if config.receive_buffer_count & (config.receive_buffer_count - 1):
        yield Contradiction(
            f"ringmqReceiveBufferCount = {config.receive_buffer_count} is impossible; accepted: a power of two",
            "ringmqReceiveBufferCount",
        )
    yield from (found for rule in (_of_role, _of_link, _of_policy) if (found := rule(config)) is not None)


def _of_role(config: BrokerConfig) -> Contradiction | None:
    """Stock (`BrokerStartup`) refuses a slave with id 0, too. It silently sets any other id of a master to 0."""
    if config.broker_role == "SLAVE" and not config.broker_id:
        return Contradiction(
            "brokerRole = SLAVE with brokerId = 0: 0 is the master's brokerId, choose a number above 0", "brokerId"
        )
    if config.broker_role != "SLAVE" and config.broker_id:
        return Contradiction(
            f"brokerId = {config.broker_id} with brokerRole = {config.broker_role}: a master's brokerId is 0",
            "brokerId",
        )
    return None


def _of_link(config: BrokerConfig) -> Contradiction | None:
    heartbeat, housekeeping = config.ha_send_heartbeat_interval, config.ha_housekeeping_interval
    if heartbeat >= housekeeping:
        return Contradiction(
            f"haSendHeartbeatInterval = {heartbeat} is not below haHousekeepingInterval = {housekeeping}: "
            "every idle link would be closed",
            "haSendHeartbeatInterval",
        )
    ha_port = config.ha_listen_port
    if ha_port and config.listen_port and ha_port in (config.listen_port, config.listen_port - 2):
        return Contradiction(
            f"haListenPort = {ha_port} is taken: listenPort = {config.listen_port} and the VIP port below it",
            "haListenPort",
        )
    return None


def _of_policy(config: BrokerConfig) -> Contradiction | None:
    level, count = config.replication_policy, config.replica_policy
    words = (("replicaPolicy", count), ("replicationPolicy", level))
    waits = [f"{name} = {word}" for name, word in words if word not in ("", "none")]
    if waits and config.broker_role == "ASYNC_MASTER":
        return Contradiction(f"{waits[0]} waits for slaves, brokerRole = ASYNC_MASTER does not", "brokerRole")
    if waits and "none" in (level, count):
        return Contradiction(f"{waits[0]} waits for slaves, the other policy of replication is none", "replicaPolicy")
    if count in ("majority", "all") and config.total_replicas < 2:
        return Contradiction(
            f"replicaPolicy = {count} needs totalReplicas, which is {config.total_replicas}: "
            "set it to the number of replicas, the master included",
            "totalReplicas",
        )
    if count == "rooms" and not config.ha_room:
        return Contradiction("replicaPolicy = rooms needs haRoom, the room of this broker", "haRoom")
    return _of_minimum(config)


def _of_minimum(config: BrokerConfig) -> Contradiction | None:
    """A send may not require fewer replicas than the minimum for which it is accepted. The master counts."""
    total, policy = config.total_replicas, config.replica_policy
    asked = {"one": 2, "majority": total // 2 + 1, "all": total, "rooms": 3}.get(policy, config.in_sync_replicas)
    if policy == "none" or asked >= config.min_in_sync_replicas:
        return None
    what = f"replicaPolicy = {policy}, {asked} replicas," if policy else f"inSyncReplicas = {asked}"
    return Contradiction(f"{what} is below minInSyncReplicas = {config.min_in_sync_replicas}", "minInSyncReplicas")


def waits_for_replicas(config: BrokerConfig) -> bool:
    """True if this broker's answer to a send depends on its slaves."""
    return config.broker_role == "SYNC_MASTER" and "none" not in (config.replication_policy, config.replica_policy)


def needs_ha_at_once(config: BrokerConfig, store_root: Path) -> bool:
    """True if a master's ha starts before the first slave connects, because it counts the replicas that sends wait
    for."""
    return waits_for_replicas(config)
