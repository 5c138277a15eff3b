"""The queues in a store's configuration: queues that never had a message have no files.

RingMQ and stock write `config/topics.json` before they answer the creation of a topic.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, load_config, read_standard_json

log = logging.getLogger("ringmq.spark_bridge")

FILE: Final = "topics.json"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_INHERIT, _READ = 1, 4  # PermName


def configured_queues(root: Path, wants: Callable[[str], bool], *, with_own: bool) -> Iterator[tuple[str, int]]:
    """Yield (topic, queue id) of the readable queues of the wanted topics.

    Without `with_own` the topics named after the broker and its cluster are left out. They are recognised as the
    topics from which new topics inherit. A file that cannot be read has no queues, and a log line reports it.
    """
    try:
        topics = _load(root).get("topicConfigTable", {})
        own: set[str] = set() if with_own else {topic for topic, config in topics.items() if config["perm"] & _INHERIT}
        for topic, config in topics.items():
            if config["perm"] & _READ and topic.removesuffix(REPLY_SUFFIX) not in own and wants(topic):
                for queue_id in range(config["readQueueNums"]):
                    yield topic, queue_id
    except (OSError, ConfigFileError, AttributeError, KeyError, TypeError) as error:
        log.warning("%s: queues without messages are missing, because %s cannot be read: %r", root, FILE, error)


def _load(root: Path) -> dict[str, Any]:
    """Return the file, or its .bak. Plain JSON, the usual case, is read by a parser that is forty times as fast."""
    try:
        loaded: dict[str, Any] = read_standard_json(root / layout.CONFIG / FILE)
    except (FileNotFoundError, ConfigFileError):
        return load_config(root, FILE)
    return loaded
