"""Tells if the store holds work for the worker `services` (`services/kit/open_work.py`)."""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.remoting.names import COMMITS_TOPIC
from ringmq.services.kit.open_work import StoreLook


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a service has open work. Raises OSError."""
    look = StoreLook(config, root)
    if look.topics.find(COMMITS_TOPIC) is None:
        return False
    from ringmq.services.staged.open_commits import has_open_commits

    return has_open_commits(root, look.plane, look.log(), look.topics)
