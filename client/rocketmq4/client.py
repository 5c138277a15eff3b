"""The names of `rocketmq.client`, of both packages."""

from ringmq.client.rocketmq4.consts import MessageProperty
from ringmq.client.rocketmq4.consumers import PullConsumer, PushConsumer
from ringmq.client.rocketmq4.ffi import MessageModel
from ringmq.client.rocketmq4.messages import (
    ConsumeStatus,
    Message,
    ReceivedMessage,
    RecvMessage,
    SendResult,
    SendStatus,
    TransactionStatus,
)
from ringmq.client.rocketmq4.producers import Producer, TransactionMQProducer, hashing_queue_selector

__all__ = [
    "ConsumeStatus",
    "Message",
    "MessageModel",
    "MessageProperty",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "RecvMessage",
    "SendResult",
    "SendStatus",
    "TransactionMQProducer",
    "TransactionStatus",
    "hashing_queue_selector",
]
