"""Sizes of the arenas of ports, as rows of the worker table name them (`PortRow.arena`). Unused pages take no memory.

Every start of a broker calls these functions, so this module imports nothing of the workers.
"""

from __future__ import annotations

from typing import Any

from ringmq.native import lib

REPUBLISHER_BYTES_MIN = 4 << 20
PROPERTIES_BYTES_MAX = 1 << 16
CHAINS = 8
"""Chains of `transactions` in flight."""
NATIVE_CHAINS: int = lib.RMQ_END_CHAINS
"""Those of C (`end_chains`), with the numbers behind."""
OP_BYTES_MAX = 4096
PAGE_BYTES = 4096
APPEND_SLOTS = 6
"""Staged writes in flight, with a decision and a done record."""
PROPERTIES_BYTES = 4096
"""Bytes of the slot of an append behind the body."""
RECALL_SLOTS = 256
RECALLS_BYTES = RECALL_SLOTS * (PROPERTIES_BYTES + 64)
COPIES_BYTES_MIN = 8 << 20
REPLY_PROPERTIES_BYTES = 1 << 15


def republisher_bytes(config: Any) -> int:
    """Size of a republisher's arena: two of the largest messages fit."""
    return max(REPUBLISHER_BYTES_MIN, 2 * (int(config.max_message_size) + PROPERTIES_BYTES_MAX))


def chains_bytes(config: Any) -> int:
    """Size of the arena of `transactions`."""
    return (CHAINS + NATIVE_CHAINS) * chain_bytes(int(config.max_message_size))


def chain_bytes(message_bytes_max: int) -> int:
    """Size of the part for one chain: the largest copy fits, and the op record."""
    size = message_bytes_max + PROPERTIES_BYTES_MAX + OP_BYTES_MAX + PAGE_BYTES
    return size + PAGE_BYTES - 1 & ~(PAGE_BYTES - 1)


def services_bytes(config: Any) -> int:
    """Size of the arena of `services`: the slots of staged writes, then those of recalls, then the ring of replies,
    then that of `send_back` for copies."""
    return appends_bytes(config) + RECALLS_BYTES + replies_bytes(config) + copies_bytes(config)


def appends_bytes(config: Any) -> int:
    """Size of the slots of staged writes. Each takes the largest body. maxMessageSize needs a restart."""
    slot = int(config.max_message_size) + PROPERTIES_BYTES
    return APPEND_SLOTS * (slot + PAGE_BYTES - 1 & ~(PAGE_BYTES - 1))


def replies_bytes(config: Any) -> int:
    """Size of the ring for replies. Two of the largest messages fit."""
    return copies_bytes(config)


def copies_bytes(config: Any) -> int:
    """Size of the ring for copies. Two of the largest messages fit."""
    return max(COPIES_BYTES_MIN, 2 * (int(config.max_message_size) + PROPERTIES_BYTES_MAX))
