"""Tells if timer messages wait. The row of the worker `timer` names `has_timers` as `needed_at_once`."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.native import lib
from ringmq.remoting.names import WHEEL_TIMER_TOPIC
from ringmq.services.arrivals import Arrivals
from ringmq.services.topics import Topics


def has_timers(config: BrokerConfig, root: Path) -> bool:
    """True if a timer message may wait. The store must be recovered and the plane filled; no worker runs yet. Else the
    first timer message starts the worker. Raises OSError."""
    plane = Plane.open(plane_name(root))
    queue = Topics(plane).queue(WHEEL_TIMER_TOPIC, 0)
    if queue is None:
        return False
    Arrivals(plane, plane.port_of(lib.RMQ_ROLE_TIMER)).want(queue[1])
    marks, end = plane.watermarks, int(plane.queue(queue[1]).max_offset)
    return int(marks.dispatched_offset) < int(marks.append_offset) or _waits(config, root, plane, end)


def _waits(config: BrokerConfig, root: Path, plane: Plane, end: int) -> bool:
    """True if the files of the timer leave open whether one waits."""
    from ringmq.services.log_view import LogView
    from ringmq.store.config_files import ConfigFileError
    from ringmq.store.message_store import MessageStore
    from ringmq.timer.progress import load_saved, read_rest

    try:
        if end != read_rest(root):  # an offset beyond the end tells nothing
            return True
        log = LogView(plane, MessageStore(store_config(config)))
        return load_saved(root, log, int(plane.watermarks.append_offset)).is_cut
    except ConfigFileError:
        return True  # the worker logs the error
