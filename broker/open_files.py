"""The open files of a process: those that a start needs, and the connections that fit into them. Pure."""

from dataclasses import replace

from ringmq.broker.config.broker_config import BrokerConfig

FILES_BESIDE = 4096
"""Descriptors of a read worker beside its connections: mapped files while they are opened, and its own."""
FILES_OF_START, FILES_OF_READER = 64, 4
"""Descriptors of the main process, with those that a recovery opens for a while: 31 and 4 for each reader stay."""
FILES_OF_DISPATCH = 256
"""Descriptors of dispatch. It takes half of its limit for queues, an eighth for deleted files, 66 for files that wait
for a sync, and 30 of its own. With fewer it fails at some queue, and the store refuses writes."""
FEW_CONNECTIONS = 4096
"""A start with fewer connections per reader is logged, although ringmqConnectionsMax is not set."""


def too_few_files(readers: int, soft_limit: int, hard_limit: int) -> str:
    """The error of a start whose processes could not open their files ("" = they fit). A limit below 0: there is none.

    The main process keeps its soft limit. Workers raise theirs to the hard one.
    """
    for kind, option, limit, least in (
        ("hard limit", "-Hn", hard_limit, FILES_OF_DISPATCH),
        ("limit", "-n", soft_limit, FILES_OF_START),
    ):
        needed = least + FILES_OF_READER * readers
        if 0 <= limit < needed:
            return (
                f"the {kind} of open files is {limit}, a broker needs {needed} and one for each connection: "
                f"raise it (ulimit {option}, LimitNOFILE)"
            )
    return ""


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
