"""The Python SDK: asyncio first (`Producer`, `Consumer`), a blocking facade in `ringmq.client.blocking`.

Owns connections, routes, retries, group membership, acknowledgement. Rules stand in modules without IO (`allocation`,
`ack_window`, `routes`, `retry`, `offsets.choose_start`, `received`); the rest moves bytes.
May import: ringmq.remoting. Works without the C core.
"""

from ringmq.client.consumer import Consumer
from ringmq.client.errors import (
    BrokerError,
    ClientClosedError,
    ConnectError,
    RequestTimeoutError,
    RingmqError,
    RouteError,
    SendError,
)
from ringmq.client.offsets import ConsumeFrom
from ringmq.client.producer import Producer, SendResult, SendStatus
from ringmq.client.queue_reader import PullOptions
from ringmq.client.retry import RetryPolicy
from ringmq.client.send_request import BodyRules, compose_message
from ringmq.remoting.flags import Compression
from ringmq.remoting.message import Message, MessageExt
from ringmq.remoting.message_queue import MessageQueue

__all__ = [
    "BodyRules",
    "BrokerError",
    "ClientClosedError",
    "Compression",
    "ConnectError",
    "ConsumeFrom",
    "Consumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PullOptions",
    "RequestTimeoutError",
    "RetryPolicy",
    "RingmqError",
    "RouteError",
    "SendError",
    "SendResult",
    "SendStatus",
    "compose_message",
]
