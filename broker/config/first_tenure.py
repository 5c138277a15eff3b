"""The tenure with which a start begins. No other module derives the side of a broker from its properties.

A running broker's side is the word `tenure` of the watermark page (`ipc/tenure.py`).
"""

from __future__ import annotations

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.tenure import Tenure, TenureState


def first_tenure(config: BrokerConfig, epoch: int = 0) -> Tenure:
    """The tenure that brokerRole names. `epoch`: of the tenure file, 0 without one."""
    return Tenure(TenureState.SLAVE if config.broker_role == "SLAVE" else TenureState.MASTER, epoch)


def asks_first(config: BrokerConfig, epoch: int = 0) -> bool:
    """True if a start as master asks the brokers of its group before it serves: one of them may have been promoted."""
    return not starts_as_slave(config) and bool(epoch or config.ha_allowed_networks)


def starts_as_slave(config: BrokerConfig) -> bool:
    """True if a start begins as a slave. For what happens before the watermark page exists, and for checks of a broker
    that does not run."""
    return first_tenure(config).follows_master


def master_role(config: BrokerConfig) -> str:
    """The word of brokerRole for this broker as a master: ASYNC_MASTER if the configuration names a slave."""
    return "ASYNC_MASTER" if config.broker_role == "SLAVE" else config.broker_role


def role_words(config: BrokerConfig) -> dict[str, str | int]:
    """The properties that name the side of the start, for the audit trail."""
    return {"brokerRole": config.broker_role, "brokerId": config.broker_id}
