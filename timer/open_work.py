"""Tells if timer messages wait (`services/kit/open_work.py`)."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import lib
from ringmq.remoting.names import WHEEL_TIMER_TOPIC
from ringmq.services.kit.open_work import StoreLook


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a timer message may wait. Else the first timer message starts the worker. Raises OSError."""
    look = StoreLook(config, root)
    queue = look.topics.queue(WHEEL_TIMER_TOPIC, 0)
    if queue is None:
        return False
    look.start_at_arrival(lib.RMQ_ROLE_TIMER, queue[1])
    return not look.is_dispatched or _waits(look, int(look.plane.queue(queue[1]).max_offset))


def _waits(look: StoreLook, end: int) -> bool:
    """True if the files of the timer leave open whether one waits."""
    from ringmq.store.config_files import ConfigFileError
    from ringmq.timer.progress import load_saved, read_rest

    try:
        if end != read_rest(look.root):  # an offset beyond the end tells nothing
            return True
        return load_saved(look.root, look.log(), look.log_end).is_cut
    except ConfigFileError:
        return True  # the worker logs the error
