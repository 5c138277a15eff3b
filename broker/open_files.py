"""The number of connections that fit into the open files of a process. Pure."""

from dataclasses import replace

from ringmq.broker.config.broker_config import BrokerConfig

FILES_BESIDE = 4096
"""Descriptors of a read worker beside its connections: mapped files while they are opened, and its own."""
FEW_CONNECTIONS = 4096
"""A start with fewer connections per reader is logged, although nobody has set ringmqConnectionsMax."""


def fit_connections(config: BrokerConfig, hard_limit: int) -> tuple[BrokerConfig, str]:
    """The configuration with as many connections per reader as fit, and a log line ("" = all fit).

    Beyond the limit a reader accepts a connection and closes it at once. Otherwise accept would fail, and clients would
    wait in the kernel's queue without an error. `hard_limit` below 0: there is none.
    """
    if hard_limit < 0 or config.connections_max + FILES_BESIDE <= hard_limit:
        return config, ""
    fits = max(hard_limit - FILES_BESIDE, hard_limit // 2, 1)
    if fits >= config.connections_max:
        return config, ""
    wanted = config.connections_max + FILES_BESIDE
    text = (
        f"ringmqConnectionsMax = {config.connections_max}, but {hard_limit} open files have room for {fits} connections"
        f" per reader: raise the hard limit (ulimit -Hn, LimitNOFILE) to {wanted}, or lower ringmqConnectionsMax"
    )
    return replace(config, connections_max=fits), text
