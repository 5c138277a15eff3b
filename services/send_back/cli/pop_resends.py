"""Resends to groups that pop: their members read no retry topic but those of POP, one for each topic.

A send-back (36) goes to `%RETRY%group`, which members that pop never read. So the resend is a send to the retry topic
of POP, which no other group reads. It counts no earlier failure: otherwise a consumer that gives up after so many times
would do so at once.
"""

from __future__ import annotations

import time

from ringmq.cli.admin import TIMEOUT_MS, Admin
from ringmq.client.namespaces import with_namespace
from ringmq.remoting import properties
from ringmq.remoting.client_headers import SendMessageRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import MessageExt
from ringmq.remoting.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, pop_retry_topic

POPS = "CONSUME_POP"
PRODUCER_GROUP = "ringmq_cli_producer"
_OF_A_RETRY = frozenset({
    properties.DELAY, properties.REAL_TOPIC, properties.REAL_QID, properties.TRAN_MSG, properties.POP_CK,
    *properties.TIMER_PROPERTIES,
})  # fmt: skip
"""Properties that would have the broker delay the message, or keep it as a half message."""


def topic_of(message: MessageExt, wire_group: str) -> str:
    """The topic whose message a group has failed, by its name on the wire. A dead letter of POP names a retry topic."""
    topic = message.properties.get(properties.RETRY_TOPIC, message.topic)
    for separator in "_+":
        topic = topic.removeprefix(f"{RETRY_PREFIX}{wire_group}{separator}")
    return topic


class PopResends:
    """Sends failed messages of one group to the topics that its pops read. Asks once for each topic whether it pops."""

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin, self._wire_group = admin, with_namespace(admin.namespace, group)
        self._group, self._pops = group, dict[str, bool]()

    async def send(self, address: str, message: MessageExt) -> bool:
        """Send a copy of the message to its broker. False: the group does not pop its topic, and nothing is sent.

        Raises `RingmqError`.
        """
        topic = topic_of(message, self._wire_group)
        if topic not in self._pops:
            self._pops[topic] = await self._does_pop(topic)
        if not self._pops[topic]:
            return False
        kept = {name: value for name, value in message.properties.items() if name not in _OF_A_RETRY}
        header = SendMessageRequestHeader(
            producer_group=PRODUCER_GROUP, topic=pop_retry_topic(self._wire_group, topic, is_v2=False),
            default_topic=AUTO_CREATE_TOPIC, default_topic_queue_nums=1, queue_id=0, sys_flag=message.sys_flag,
            born_timestamp=int(time.time() * 1000), flag=message.flag, reconsume_times=0,
            properties=properties.encode_properties(kept | {properties.RETRY_TOPIC: topic}),
        )  # fmt: skip
        fields = header.encode()
        await self._admin.client.call(address, RequestCode.SEND_MESSAGE, fields, message.body, timeout_ms=TIMEOUT_MS)
        return True

    async def _does_pop(self, topic: str) -> bool:
        """Members that are connected tell it. Otherwise the last one that had messages does, and then the retry topic,
        which exists once a message has come again to a pop."""
        members = await self._admin.connections(self._group)
        if members is not None:
            return members.consume_type == POPS
        stats = await self._admin.progress(self._group, topic)
        again = {pop_retry_topic(self._group, topic, is_v2=is_v2) for is_v2 in (False, True)}
        return any(entry.open_messages is not None or queue.topic in again for queue, entry in stats.offsets.items())
