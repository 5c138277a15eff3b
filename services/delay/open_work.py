"""Tells if messages wait for a time of delivery. The row of the worker `delay` names `has_delayed` as
`needed_at_once`.
"""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.native import lib
from ringmq.services.delay.arrivals import Arrivals
from ringmq.services.delay.levels import schedule_slots
from ringmq.services.delay.progress import stock_offsets
from ringmq.store.config import parse_delay_levels
from ringmq.store.config_files import ConfigFileError


def has_delayed(config: BrokerConfig, root: Path) -> bool:
    """True if a message waits, or if the log holds records that no queue has yet. The store must be recovered and the
    plane filled; no worker runs yet. Else the first delayed message starts the worker. Raises OSError."""
    plane = Plane.open(plane_name(root))
    levels = len(parse_delay_levels(config.message_delay_level))
    slots = schedule_slots(plane, levels)
    arrivals = Arrivals(plane, plane.port_of(lib.RMQ_ROLE_DELAY))
    for slot in slots:
        arrivals.want(slot)
    marks = plane.watermarks
    if int(marks.dispatched_offset) < int(marks.append_offset):
        return True
    try:
        offsets = stock_offsets(root, levels)
    except ConfigFileError:
        return True  # the worker says so
    return any(int(plane.queue(slot).max_offset) > offset for slot, offset in zip(slots, offsets, strict=True))
