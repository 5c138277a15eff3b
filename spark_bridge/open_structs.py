"""Open messages of POP in the structs of the C core, decoded by numpy: rows of entries, and of batches of orderly
groups (`native/src/pop/pop_layout.h`)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringmq.native import lib
from ringmq.spark_bridge.struct_types import struct_type

UNKNOWN = -1
Numbers = NDArray[np.int64]
ENTRY = struct_type(
    "struct rmq_pop_entry",
    {
        "base_offset": "<i8", "present": "<u8", "acked": "<u8", "pop_time_ms": "<i8", "invisible_ms": "<u4",
        "copied": "<u8", "window": "<u4", "client": "<u4", "state": "u1",
    },
)  # fmt: skip
ORDER = struct_type(
    "struct rmq_pop_order",
    {
        "base_offset": "<i8", "pop_time_ms": "<i8", "window": "<u4", "count": "<u2", "acked": "<u4", "returned": "<u4",
        "client": "<u4", "deltas": f"{lib.RMQ_POP_ORDER_MESSAGES}<u4", "visible_ms": f"{lib.RMQ_POP_ORDER_MESSAGES}<u4",
        "consumed": f"{lib.RMQ_POP_ORDER_MESSAGES}<u2",
    },
)  # fmt: skip
_HELD = (lib.RMQ_POP_OPEN, lib.RMQ_POP_MOVING, lib.RMQ_POP_REVIVING)
"""States of entries whose messages a consumer has, or whose copies are on their way."""
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""The number of bits of each byte."""


class OpenRows(NamedTuple):
    """Some open messages, a number of each in every array. `windows`: ids of their windows. `attempts`: times that a
    consumer was given the message, UNKNOWN where the log alone tells. `clients`: hashes of connections, 0 = unknown.
    """

    windows: Numbers
    offsets: Numbers
    popped_ms: Numbers
    until_ms: Numbers
    attempts: Numbers
    clients: Numbers


def held_entries(chunk: bytes, windows: NDArray[np.uint32]) -> NDArray[Any]:
    """The entries of a chunk, of these windows, that have open messages."""
    entries: NDArray[Any] = np.frombuffer(chunk, ENTRY)
    is_held = np.isin(entries["state"], _HELD) & np.isin(entries["window"], windows)
    found: NDArray[Any] = entries[is_held & (_open_bits(entries) != 0)]
    return found


def counts_of(entries: NDArray[Any]) -> Numbers:
    """The number of open messages of each entry."""
    of_bytes = _BITS[_open_bits(entries).view(np.uint8).reshape(-1, 8)]
    found: Numbers = of_bytes.sum(axis=1, dtype=np.int64)
    return found


def rows_of_entries(entries: NDArray[Any]) -> OpenRows:
    """The open messages of entries."""
    bits = _open_bits(entries).view(np.uint8).reshape(-1, 8)
    which, bit = np.nonzero(np.unpackbits(bits, axis=1, bitorder="little"))
    of = entries[which]
    popped_ms = of["pop_time_ms"]
    return OpenRows(
        of["window"].astype(np.int64), of["base_offset"] + bit, popped_ms, popped_ms + of["invisible_ms"],
        np.full(len(of), UNKNOWN, np.int64), of["client"].astype(np.int64),
    )  # fmt: skip


def held_orders(batches: bytes, begins: list[int], windows: NDArray[np.uint32]) -> tuple[NDArray[Any], Numbers]:
    """The batches, of these windows, that a consumer has received. Messages below their `begins` are done."""
    orders: NDArray[Any] = np.frombuffer(batches, ORDER)
    is_held = np.isin(orders["window"], windows) & (orders["returned"] == 0)
    return orders[is_held], np.array(begins, np.int64)[is_held]


def rows_of_orders(orders: NDArray[Any], begins: Numbers) -> OpenRows:
    """The open messages of batches."""
    numbers = np.arange(lib.RMQ_POP_ORDER_MESSAGES)
    offsets = orders["base_offset"][:, None] + orders["deltas"]
    is_done = (orders["acked"][:, None] >> numbers.astype(np.uint32) & 1 != 0) | (offsets < begins[:, None])
    which, number = np.nonzero((numbers < orders["count"][:, None]) & ~is_done)
    of = orders[which]
    return OpenRows(
        of["window"].astype(np.int64), offsets[which, number], of["pop_time_ms"],
        of["pop_time_ms"] + orders["visible_ms"][which, number],
        orders["consumed"][which, number].astype(np.int64) + 1, of["client"].astype(np.int64),
    )  # fmt: skip


def _open_bits(entries: NDArray[Any]) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = entries["present"] & ~entries["acked"] & ~entries["copied"]
    return found
