"""Tells if messages wait for a time of delivery (`services/kit/open_work.py`)."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.native import lib
from ringmq.services.delay.levels import queue_ends, schedule_slots
from ringmq.services.kit.open_work import StoreLook
from ringmq.store.config import parse_delay_levels


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a message waits, or if the log holds records that no queue has yet. Else the first delayed message starts
    the worker. Raises OSError."""
    look = StoreLook(config, root)
    plane, slots = look.plane, schedule_slots(look.plane, len(parse_delay_levels(config.message_delay_level)))
    look.start_at_arrival(lib.RMQ_ROLE_DELAY, *slots)
    if not look.is_dispatched:
        return True
    are_empty = all(int(plane.queue(slot).max_offset) <= int(plane.queue(slot).min_offset) for slot in slots)
    return not are_empty and _waits(look, slots)


def _waits(look: StoreLook, slots: list[int]) -> bool:
    """True if a queue has more than was delivered of it."""
    from ringmq.services.delay.progress import load_progress, may_have_waiting
    from ringmq.store.config_files import ConfigFileError

    try:
        saved = load_progress(look.root, len(slots), look.log(), look.log_end, ends=queue_ends(look.plane, slots))
    except ConfigFileError:
        return True  # the worker logs the error
    return may_have_waiting(look.plane, slots, saved)
