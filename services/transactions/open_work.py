"""Tells if transactions are open (`services/kit/open_work.py`)."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.half_shares import HalfShares
from ringmq.native import lib
from ringmq.remoting.names import HALF_TOPIC, OP_HALF_TOPIC
from ringmq.services.kit.open_work import StoreLook


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a half message may be open. Else the first half message or end starts the worker. For the shares, all
    halves from the oldest one on that may be open count as open. Raises OSError."""
    look = StoreLook(config, root)
    queue = look.topics.queue(HALF_TOPIC, 0)
    if queue is None:
        return False
    look.start_at_arrival(lib.RMQ_ROLE_TRANSACTIONS, queue[1])
    entry = look.plane.queue(queue[1])
    end = int(entry.max_offset)
    low = max(int(entry.min_offset), _low(look, end)) if end else 0
    HalfShares(look.plane).publish(0, low)
    return not look.is_dispatched or low < end


def _low(look: StoreLook, end: int) -> int:
    """The half-queue offset below which no half is open: of the newest op record, else of consumerOffset.json. One
    beyond the `end` of the half queue counts as none."""
    from ringmq.services.transactions.records import low_of_op
    from ringmq.services.transactions.recovery import stock_offset
    from ringmq.store.record import parse_record

    log, queue = look.log(), look.topics.queue(OP_HALF_TOPIC, 0)
    newest = 0 if queue is None else int(look.plane.queue(queue[1]).max_offset) - 1
    for position, _ in log.units(OP_HALF_TOPIC, 0, newest, 1) if newest >= 0 else ():
        data = log.record(position)
        record = None if data is None else parse_record(data)[1]
        if record is not None and (low := low_of_op(record)) is not None:
            return low if low <= end else -1
    return stock_offset(look.root, end)
