"""Tells if the store holds work for the worker `services`. The worker's row names `has_open_work` as `needed_at_once`.

Every start of a broker calls it. For a store without work of a service it costs a look into the plane, and no imports.
"""

from __future__ import annotations

from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.remoting.names import COMMITS_TOPIC
from ringmq.services.topics import Topics


def has_open_work(config: BrokerConfig, root: Path) -> bool:
    """True if a service has open work. The store must be recovered and the plane filled; no worker runs yet. Raises
    OSError."""
    plane = Plane.open(plane_name(root))
    topics = Topics(plane)
    return topics.find(COMMITS_TOPIC) is not None and _has_open_commits(config, root, plane, topics)


def _has_open_commits(config: BrokerConfig, root: Path, plane: Plane, topics: Topics) -> bool:
    from ringmq.services.log_view import LogView
    from ringmq.services.staged.open_commits import has_open_commits
    from ringmq.store.message_store import MessageStore

    return has_open_commits(root, plane, LogView(plane, MessageStore(store_config(config))), topics)
