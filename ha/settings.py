"""The properties on which the cores of replication decide, typed.

The broker checks names, ranges and contradictions before (docs/properties.md). A missing property has the broker's
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ringmq.remoting.networks import Networks


def _property(name: str, default: Any, read: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={"name": name, "read": read})


def _number(name: str, default: int) -> Any:
    return _property(name, default, int)


def _word(name: str, default: str) -> Any:
    return _property(name, default, str.strip)


def _switch(name: str) -> Any:
    return _property(name, False, lambda text: text.strip().lower() == "true")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((slave, room) for slave, _, room in (part.rpartition("=") for part in _parts(text)))


@dataclass(frozen=True, slots=True)
class HaSettings:
    """Times in ms, sizes in bytes. Numbers of replicas count the master."""

    broker_cluster_name: str = _word("brokerClusterName", "DefaultCluster")
    broker_name: str = _word("brokerName", "broker-a")
    broker_id: int = _number("brokerId", 0)
    broker_role: str = _word("brokerRole", "ASYNC_MASTER")
    flush_disk_type: str = _word("flushDiskType", "ASYNC_FLUSH")
    replication_policy: str = _word("replicationPolicy", "")
    """none, handed, sent, received, cached, flushed. "" = by brokerRole."""
    replica_policy: str = _word("replicaPolicy", "")
    """none, one, majority, all, rooms. "" = by brokerRole and inSyncReplicas."""
    in_sync_replicas: int = _number("inSyncReplicas", 1)
    min_in_sync_replicas: int = _number("minInSyncReplicas", 1)
    total_replicas: int = _number("totalReplicas", 1)
    enable_auto_in_sync_replicas: bool = _switch("enableAutoInSyncReplicas")
    slave_timeout_ms: int = _number("slaveTimeout", 3000)
    max_gap_not_in_sync_bytes: int = _number("haMaxGapNotInSync", 268_435_456)
    heartbeat_ms: int = _number("haSendHeartbeatInterval", 5000)
    housekeeping_ms: int = _number("haHousekeepingInterval", 20_000)
    start_from_newest_file: bool = _switch("haStartFromNewestFile")
    room: str = _word("haRoom", "")
    replica_rooms: tuple[tuple[str, str], ...] = _property("haReplicaRooms", (), _pairs)
    """(brokerId or address, room)."""
    allowed_replicas: tuple[str, ...] = _property("haAllowedReplicas", (), _parts)
    """brokerIds and addresses. None = every slave counts."""
    allowed_networks: Networks = field(
        default_factory=Networks, metadata={"name": "haAllowedNetworks", "read": Networks.parse}
    )
    """Networks that may connect to the replication port. Empty = every peer."""
    divergence_rule: str = _word("haDivergenceRule", "refuse")
    master_address: str = _word("haMasterAddress", "")
    namesrv_addr: str = _word("namesrvAddr", "")
    file_bytes: int = _number("mappedFileSizeCommitLog", 1_073_741_824)

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> HaSettings:
        """Property name -> text, as in a properties file. Other properties are ignored."""
        entries = {entry.name: entry.metadata for entry in fields(HaSettings)}
        return HaSettings(
            **{
                attribute: entry["read"](properties[entry["name"]])
                for attribute, entry in entries.items()
                if entry["name"] in properties
            }
        )

    @staticmethod
    def property_names() -> dict[str, str]:
        """Attribute -> property name."""
        return {entry.name: entry.metadata["name"] for entry in fields(HaSettings)}
