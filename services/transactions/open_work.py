"""Tells if transactions are open. The row of the worker `transactions` names `has_open_halves` as `needed_at_once`."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.half_shares import HalfShares
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.native import lib
from ringmq.remoting.names import HALF_TOPIC, OP_HALF_TOPIC
from ringmq.services.arrivals import Arrivals
from ringmq.services.topics import Topics


def has_open_halves(config: BrokerConfig, root: Path) -> bool:
    """True if a half message may be open. The store must be recovered and the plane filled; no worker runs yet. Else
    the first half message or end starts the worker. For the shares, all halves from the oldest one on that may be open
    count as open. Raises OSError."""
    plane = Plane.open(plane_name(root))
    queue = Topics(plane).queue(HALF_TOPIC, 0)
    if queue is None:
        return False
    Arrivals(plane, plane.port_of(lib.RMQ_ROLE_TRANSACTIONS)).want(queue[1])
    marks, entry = plane.watermarks, plane.queue(queue[1])
    end = int(entry.max_offset)
    low = max(int(entry.min_offset), _low(config, root, plane, end)) if end else 0
    HalfShares(plane).publish(0, low)
    return int(marks.dispatched_offset) < int(marks.append_offset) or low < end


def _low(config: BrokerConfig, root: Path, plane: Plane, end: int) -> int:
    """The half-queue offset below which no half is open: of the newest op record, else of consumerOffset.json. One
    beyond the `end` of the half queue counts as none."""
    from ringmq.services.log_view import LogView
    from ringmq.services.transactions.records import low_of_op
    from ringmq.services.transactions.recovery import stock_offset
    from ringmq.store.message_store import MessageStore
    from ringmq.store.record import parse_record

    log, queue = LogView(plane, MessageStore(store_config(config))), Topics(plane).queue(OP_HALF_TOPIC, 0)
    newest = 0 if queue is None else int(plane.queue(queue[1]).max_offset) - 1
    for position, _ in log.units(OP_HALF_TOPIC, 0, newest, 1) if newest >= 0 else ():
        data = log.record(position)
        record = None if data is None else parse_record(data)[1]
        if record is not None and (low := low_of_op(record)) is not None:
            return low if low <= end else -1
    return stock_offset(root, end)
