"""The part of guests when a start cuts the log (store/store_task.py), or goes on with that of a master."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.first_tenure import starts_as_slave
from ringmq.broker.start_error import unusable_file
from ringmq.ipc.guests import parts

_FORGETS, _AS_SLAVE = tuple(parts("on_log_cut")), tuple(parts("on_slave_start"))
"""Loaded now: a main process that opens its store again loads no module of a later build."""


def forget_behind(root: Path, log_offset: int) -> None:
    """Let guests forget what is true of the log behind an offset alone. The log is cut there next. Raises OSError."""
    for forget in _FORGETS:
        forget(root, log_offset)


def forget_unless_master(config: BrokerConfig) -> None:
    """Let guests of a slave forget what belongs to a master: the log gets records of another one. Raises StartError."""
    root = Path(config.store_path_root_dir)
    try:
        for forget in _AS_SLAVE if starts_as_slave(config) else ():
            forget(root)
    except OSError as error:
        raise unusable_file(root, error) from error
