"""Sends to a drill's topic. The checker records each message before it leaves."""

import itertools
from collections.abc import Iterator

from ringmq.client import Message, compose_message
from ringmq.loadtest.drills.checker import Checker
from ringmq.loadtest.drills.reads import TOPIC


def lane_messages(checker: Checker, queue_id: int, lane: int) -> Iterator[tuple[str, Message]]:
    """Yield ids and messages of many lengths, without end. A lane sends them in order; each begins when it is taken."""
    name = f"q{queue_id}-{lane}"
    for number in itertools.count(1):
        message_id = f"{name}-{number}"
        checker.began(name, message_id)
        body = message_id.encode() + b"." * (number * 37 % 700)
        yield message_id, compose_message(TOPIC, body, keys=message_id)
