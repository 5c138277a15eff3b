"""Tells if messages wait for a time of delivery. The row of the worker `delay` names `has_delayed` as
`needed_at_once`.
"""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.native import lib
from ringmq.services.arrivals import Arrivals
from ringmq.services.delay.levels import queue_ends, schedule_slots
from ringmq.store.config import parse_delay_levels


def has_delayed(config: BrokerConfig, root: Path) -> bool:
    """True if a message waits, or if the log holds records that no queue has yet. The store must be recovered and the
    plane filled; no worker runs yet. Else the first delayed message starts the worker. Raises OSError."""
    plane = Plane.open(plane_name(root))
    levels = len(parse_delay_levels(config.message_delay_level))
    slots = schedule_slots(plane, levels)
    arrivals = Arrivals(plane, plane.port_of(lib.RMQ_ROLE_DELAY))
    for slot in slots:
        arrivals.want(slot)
    log_end = int(plane.watermarks.append_offset)
    if int(plane.watermarks.dispatched_offset) < log_end:
        return True
    are_empty = all(int(plane.queue(slot).max_offset) <= int(plane.queue(slot).min_offset) for slot in slots)
    return not are_empty and _waits(config, root, plane, slots)


def _waits(config: BrokerConfig, root: Path, plane: Plane, slots: list[int]) -> bool:
    """True if a queue has more than was delivered of it."""
    from ringmq.services.delay.progress import load_progress, may_have_waiting
    from ringmq.services.log_view import LogView
    from ringmq.store.config_files import ConfigFileError
    from ringmq.store.message_store import MessageStore

    levels, log_end = len(parse_delay_levels(config.message_delay_level)), int(plane.watermarks.append_offset)
    try:
        log = LogView(plane, MessageStore(store_config(config)))
        saved = load_progress(root, levels, log, log_end, ends=queue_ends(plane, slots))
    except ConfigFileError:
        return True  # the worker logs the error
    return may_have_waiting(plane, slots, saved)
