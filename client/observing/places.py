"""Keys of delivered messages, by which an observer finds its notes from the delivery again."""

from ringmq.remoting.message import MessageExt

Place = tuple[str, str, str, int, int]
"""Group, topic, broker, queue id, queue offset."""


def place_of(group: str, message: MessageExt) -> Place:
    """Return the key of a message that a member of `group` got."""
    return group, message.topic, message.broker_name, message.queue_id, message.queue_offset
