"""Which member of a consumer group reads which queue. No IO.

The rule is that of RocketMQ's default `AllocateMessageQueueAveragely`: all members sort the queues (topic, broker
name, queue id) and the client ids alike, and each takes its own contiguous share; the first members take one more
when it does not divide evenly. Members of other languages in the same group arrive at the same answer.
"""

from collections.abc import Iterable, Sequence

from ringmq.remoting.message_queue import MessageQueue


def allocate_averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
    """The queues of `client_id`; empty when the broker's member list does not hold it (it then owns nothing)."""
    members = sorted(set(client_ids), key=_java_order)
    if client_id not in members:
        return []
    ordered = sorted(queues, key=lambda q: (_java_order(q.topic), _java_order(q.broker_name), q.queue_id))
    index = members.index(client_id)
    share, remainder = divmod(len(ordered), len(members))
    if share == 0 and index >= remainder:
        return []
    start = index * share + min(index, remainder)
    return ordered[start : start + share + (1 if index < remainder else 0)]


def _java_order(text: str) -> bytes:
    """Java compares strings by UTF-16 code unit, Python by code point; they differ above U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")
