"""Where a message stands: by it an observer finds again what it noted when the message was handed out."""

from ringmq.remoting.message import MessageExt

Place = tuple[str, str, str, int, int]
"""Group, topic, broker, queue id, queue offset."""


def place_of(group: str, message: MessageExt) -> Place:
    """The place of a message that a member of `group` got."""
    return group, message.topic, message.broker_name, message.queue_id, message.queue_offset
