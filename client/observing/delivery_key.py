"""Keys of delivered messages, by which an observer finds its notes from the delivery again."""

from ringmq.remoting.message import MessageExt

DeliveryKey = tuple[str, str, str, int, int]
"""Group, read topic, broker, queue id, queue offset."""


def delivery_key(group: str, message: MessageExt) -> DeliveryKey:
    """Return the key of a message that a member of `group` got."""
    return group, message.read_topic or message.topic, message.broker_name, message.queue_id, message.queue_offset
