"""The distinction between topics of applications and the system's own."""

from ringmq.remoting.names import is_dlq_topic, is_retry_topic, is_system_topic

__all__ = ["is_retry_topic", "is_user_topic"]


def is_user_topic(topic: str) -> bool:
    """True if applications name the topic: not the system's own, no retry and no dead-letter topic."""
    return not (is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic))
