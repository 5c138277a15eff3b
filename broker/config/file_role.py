"""The role of a broker by its configuration, and by its tenure file (`store/tenure_file.py`)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.ha.epochs import slave_id
from ringmq.remoting.route import MASTER_ID
from ringmq.store.tenure_file import TENURE_FILE, Owner, Policy, TenureRecord


class FirstRole(Struct, frozen=True):
    """The role that a configuration names, for worker control: its properties have that of the file.

    epoch: of the file, 0 without one. is_sure: see `tenure_file.Found`.
    """

    owner: Owner
    broker_role: str
    epoch: int = 0
    is_sure: bool = True

    @property
    def is_master(self) -> bool:
        """True if the configuration names a master."""
        return self.owner.broker_id == MASTER_ID

    @classmethod
    def of(cls, config: BrokerConfig, epoch: int = 0, *, is_sure: bool = True) -> FirstRole:
        """That of this configuration, before the file changes it."""
        return cls(owner_of(config), config.broker_role, epoch, is_sure)

    def to_parameter(self) -> str:
        """For the specification of a worker."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_parameter(cls, text: str) -> FirstRole:
        """The value in a specification."""
        return msgspec.json.decode(text, type=cls)

    def policy(self, config: BrokerConfig) -> Policy:
        """The policy of this broker as a master. `config`: the one in use."""
        properties = {
            "brokerRole": "SYNC_MASTER" if self.broker_role == "SYNC_MASTER" else "ASYNC_MASTER",
            "replicationPolicy": config.replication_policy,
            "replicaPolicy": config.replica_policy,
            "inSyncReplicas": config.in_sync_replicas,
            "minInSyncReplicas": config.min_in_sync_replicas,
            "totalReplicas": config.total_replicas,
            "enableAutoInSyncReplicas": config.enable_auto_in_sync_replicas,
            "haAllowedNetworks": config.ha_allowed_networks,
        }
        return msgspec.convert(properties, Policy)


def owner_of(config: BrokerConfig) -> Owner:
    """The broker of this configuration, as its file names it."""
    return Owner(config.broker_cluster_name, config.broker_name, config.broker_id)


def with_role(config: BrokerConfig, record: TenureRecord) -> BrokerConfig:
    """`config` with the role of the file.

    A promoted slave has the policy of the last master. Its own haAllowedNetworks stays if it is set: no other broker
    opens a listener of this one.
    """
    if record.is_master is not starts_as_slave(config):
        return config
    if not record.is_master:
        return replace(config, broker_role="SLAVE", broker_id=slave_id(config.broker_id, record.epoch))
    policy = record.policy
    return replace(
        config,
        broker_role=policy.broker_role,
        broker_id=0,
        replication_policy=policy.replication_policy,
        replica_policy=policy.replica_policy,
        in_sync_replicas=policy.in_sync_replicas,
        min_in_sync_replicas=policy.min_in_sync_replicas,
        total_replicas=policy.total_replicas,
        enable_auto_in_sync_replicas=policy.enable_auto_in_sync_replicas,
        ha_allowed_networks=config.ha_allowed_networks or policy.ha_allowed_networks,
    )


def changed_role(config: BrokerConfig, first: FirstRole, record: TenureRecord) -> BrokerConfig:
    """`config` of a broker that has changed its role, with the role of `record`. `first`: of its configuration."""
    return with_role(replace(config, broker_role=first.broker_role, broker_id=first.owner.broker_id), record)


def difference(first: FirstRole, record: TenureRecord) -> str:
    """The line about a configuration with another role than the file. "" if both have the same."""
    if record.is_master is first.is_master:
        return ""
    role = "master" if record.is_master else "slave"
    text = f"this broker is a {role} of epoch {record.epoch} ({TENURE_FILE})"
    return f"{text}: brokerRole = {first.broker_role} and brokerId = {first.owner.broker_id} do not count"
