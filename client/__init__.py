"""The Python SDK: asyncio first (`Producer`, `Consumer`), the same over blocking sockets in `ringmq.client.blocking`.

Consumers pull (`Consumer`), or take single messages by POP (`SimpleConsumer`).

Owns connections, routes, retries, group membership, acknowledgement.

* Rules are in modules without IO (`allocation`, `ack_window`, `routes`, `retry`, `offsets.choose_start`,
`pull_decoding`).
* Conversations with brokers (`producer`, `consumer`, `group_member`, `queue_reader`, ...) are coroutines without
  sockets, threads or asyncio. They wait by `runtimes.runtime` alone: `sleep`, `gather`, `create_task`, `Event`,
  `Lock`, `timeout`, `shield`, `wait`, and `call_outside` for the application's own code.
* Two runtimes perform them: asyncio's event loop, and `ThreadLoop` with `SocketTransport` underneath. A conversation
  works in both, and its blocking twin is a line in `blocking`.

May import: ringmq.remoting. Works without the C core.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringmq.client.printable_log import make_printable

if TYPE_CHECKING:
    from ringmq.client.consumer import Consumer
    from ringmq.client.consuming.allocation import (
        AllocationStrategy,
        allocate_averagely,
        allocate_by_circle,
        allocate_by_config,
        allocate_by_hash,
    )
    from ringmq.client.consuming.consume_retry import ConsumeRetry, RejectMessage, RetryLater
    from ringmq.client.consuming.local_offsets import OffsetFileError
    from ringmq.client.consuming.offsets import ConsumeFrom
    from ringmq.client.consuming.queue_reader import PullOptions
    from ringmq.client.consuming.subscriptions import Sql92
    from ringmq.client.errors import (
        BodyCrcError,
        BrokerError,
        ClientClosedError,
        ConnectError,
        ReceiptExpiredError,
        ReplyTimeoutError,
        RequestTimeoutError,
        RingmqError,
        RouteError,
        SendError,
        TlsError,
    )
    from ringmq.client.interceptors import Interceptor
    from ringmq.client.observing.metrics import ClientMetrics
    from ringmq.client.observing.trace_buffer import TraceSettings
    from ringmq.client.popping.popped_message import PoppedMessage
    from ringmq.client.producer import Producer
    from ringmq.client.producing.request_reply import compose_reply
    from ringmq.client.producing.send_request import BodyRules, compose_message
    from ringmq.client.producing.send_result import SendResult, SendStatus
    from ringmq.client.producing.transactions import TransactionProducer, TransactionResult, TransactionState
    from ringmq.client.push_consumer import PushConsumer
    from ringmq.client.retry import RetryPolicy
    from ringmq.client.security.credentials import Credentials
    from ringmq.client.security.tls import TlsSettings
    from ringmq.client.settings import ConnectionSettings
    from ringmq.client.simple_consumer import SimpleConsumer
    from ringmq.remoting.flags import Compression
    from ringmq.remoting.message import Message, MessageExt
    from ringmq.remoting.message_queue import MessageQueue

__all__ = [
    "AllocationStrategy",
    "BodyCrcError",
    "BodyRules",
    "BrokerError",
    "ClientClosedError",
    "ClientMetrics",
    "Compression",
    "ConnectError",
    "ConnectionSettings",
    "ConsumeFrom",
    "ConsumeRetry",
    "Consumer",
    "Credentials",
    "Interceptor",
    "Message",
    "MessageExt",
    "MessageQueue",
    "OffsetFileError",
    "PoppedMessage",
    "Producer",
    "PullOptions",
    "PushConsumer",
    "ReceiptExpiredError",
    "RejectMessage",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "RetryLater",
    "RetryPolicy",
    "RingmqError",
    "RouteError",
    "SendError",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "Sql92",
    "TlsError",
    "TlsSettings",
    "TraceSettings",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "allocate_averagely",
    "allocate_by_circle",
    "allocate_by_config",
    "allocate_by_hash",
    "compose_message",
    "compose_reply",
]

# Loaded when it is named: who needs one rule of the SDK, as each of Spark's workers does, should not load all of it.
_HOME = {
    "AllocationStrategy": "ringmq.client.consuming.allocation",
    "allocate_averagely": "ringmq.client.consuming.allocation",
    "allocate_by_circle": "ringmq.client.consuming.allocation",
    "allocate_by_config": "ringmq.client.consuming.allocation",
    "allocate_by_hash": "ringmq.client.consuming.allocation",
    "ConsumeRetry": "ringmq.client.consuming.consume_retry",
    "RejectMessage": "ringmq.client.consuming.consume_retry",
    "RetryLater": "ringmq.client.consuming.consume_retry",
    "OffsetFileError": "ringmq.client.consuming.local_offsets",
    "Sql92": "ringmq.client.consuming.subscriptions",
    "Consumer": "ringmq.client.consumer",
    "BodyCrcError": "ringmq.client.errors",
    "BrokerError": "ringmq.client.errors",
    "ClientClosedError": "ringmq.client.errors",
    "ConnectError": "ringmq.client.errors",
    "ReceiptExpiredError": "ringmq.client.errors",
    "ReplyTimeoutError": "ringmq.client.errors",
    "RequestTimeoutError": "ringmq.client.errors",
    "RingmqError": "ringmq.client.errors",
    "RouteError": "ringmq.client.errors",
    "SendError": "ringmq.client.errors",
    "TlsError": "ringmq.client.errors",
    "ConsumeFrom": "ringmq.client.consuming.offsets",
    "PoppedMessage": "ringmq.client.popping.popped_message",
    "Producer": "ringmq.client.producer",
    "SendResult": "ringmq.client.producing.send_result",
    "SendStatus": "ringmq.client.producing.send_result",
    "PushConsumer": "ringmq.client.push_consumer",
    "PullOptions": "ringmq.client.consuming.queue_reader",
    "RetryPolicy": "ringmq.client.retry",
    "BodyRules": "ringmq.client.producing.send_request",
    "ConnectionSettings": "ringmq.client.settings",
    "SimpleConsumer": "ringmq.client.simple_consumer",
    "ClientMetrics": "ringmq.client.observing.metrics",
    "TraceSettings": "ringmq.client.observing.trace_buffer",
    "Credentials": "ringmq.client.security.credentials",
    "TlsSettings": "ringmq.client.security.tls",
    "Interceptor": "ringmq.client.interceptors",
    "TransactionProducer": "ringmq.client.producing.transactions",
    "TransactionResult": "ringmq.client.producing.transactions",
    "TransactionState": "ringmq.client.producing.transactions",
    "compose_reply": "ringmq.client.producing.request_reply",
    "compose_message": "ringmq.client.producing.send_request",
    "Compression": "ringmq.remoting.flags",
    "Message": "ringmq.remoting.message",
    "MessageExt": "ringmq.remoting.message",
    "MessageQueue": "ringmq.remoting.message_queue",
}

make_printable("ringmq.client")  # servers choose remarks, other clients keys and topics


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
