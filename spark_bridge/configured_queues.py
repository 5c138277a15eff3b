"""The queues that a broker has configured in its store: those that never had a message have no files.

`config/topics.json` is written before a topic's creation is answered, by RingMQ and by stock.
"""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, load_config

log = logging.getLogger("ringmq.spark_bridge")

FILE: Final = "topics.json"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_INHERIT, _READ = 1, 4  # PermName


def configured_queues(root: Path, wants: Callable[[str], bool], *, with_own: bool) -> Iterator[tuple[str, int]]:
    """(topic, queue id) of the readable queues of the wanted topics.

    Without `with_own` the topics that are named after the broker and its cluster are left out: new topics inherit from
    them, which tells them. A file that cannot be read is told of, and has no queues.
    """
    try:
        topics = _load(root).get("topicConfigTable", {})
        own: set[str] = set() if with_own else {topic for topic, config in topics.items() if config["perm"] & _INHERIT}
        for topic, config in topics.items():
            if config["perm"] & _READ and topic.removesuffix(REPLY_SUFFIX) not in own and wants(topic):
                for queue_id in range(config["readQueueNums"]):
                    yield topic, queue_id
    except (OSError, ConfigFileError, AttributeError, KeyError, TypeError) as error:
        log.warning("%s: queues without messages are not seen, %s is not readable: %r", root, FILE, error)


def _load(root: Path) -> dict[str, Any]:
    """The file, or its .bak; plain JSON, as it mostly is, by the parser that is forty times as fast."""
    try:
        loaded: dict[str, Any] = json.loads((root / layout.CONFIG / FILE).read_bytes())
    except (OSError, ValueError):
        return load_config(root, FILE)
    return loaded
