"""The description of a group member in heartbeats and in its running info."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.remoting.consumer_bodies import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
)
from ringmq.remoting.heartbeat import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    CONSUME_POP,
    ConsumerData,
    HeartbeatData,
)
from ringmq.remoting.subscription import SubscriptionData


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member's group and way of consuming. `is_manual`: its queues are assigned by hand."""

    group: str
    client_id: str
    name_servers: Sequence[str]
    consume_from: ConsumeFrom
    is_manual: bool
    is_ordered: bool
    is_broadcast: bool
    is_popping: bool = False

    @property
    def _consume_type(self) -> str:
        if self.is_popping:
            return CONSUME_POP
        return CONSUME_ACTIVELY if self.is_manual else CONSUME_PASSIVELY

    @property
    def _message_model(self) -> str:
        return BROADCASTING if self.is_broadcast else CLUSTERING

    def heartbeat(self, subscriptions: Iterable[SubscriptionData]) -> HeartbeatData:
        """Return the member's heartbeat."""
        consumer = ConsumerData(
            self.group,
            consume_type=self._consume_type,
            message_model=self._message_model,
            consume_from_where=self.consume_from.value,
            subscriptions=list(subscriptions),
        )
        return HeartbeatData(self.client_id, consumers=[consumer])

    def properties(self, started_ms: int, concurrency: int) -> dict[str, str]:
        """Return the member's own properties in the running info. `concurrency`: handlers at a time, 0 without one."""
        return {
            PROP_NAMESERVER_ADDR: ";".join(self.name_servers),
            PROP_CONSUME_TYPE: self._consume_type,
            PROP_CONSUME_ORDERLY: str(self.is_ordered).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(concurrency),
            PROP_CONSUMER_START_TIMESTAMP: str(started_ms),
            "messageModel": self._message_model,
            "consumeFromWhere": self.consume_from.value,
        }
