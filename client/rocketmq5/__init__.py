"""The names of the 5.x Python client (`rocketmq-python-client` 5.1) over `ringmq.client.blocking`.

`from rocketmq import ...` becomes `from ringmq.client.rocketmq5 import ...`, and `rocketmq.v5.client` (`producer`,
`consumer`, `model`, `exception`) the module of that name here. Endpoints are those of name
servers. What is not there is refused by name; what differs is in docs/moving-clients.md.
"""

from ringmq.client.rocketmq5.configuration import ClientConfiguration, Credentials, FilterExpression, FilterType
from ringmq.client.rocketmq5.consumer import (
    ConsumeResult,
    LitePushConsumer,
    LiteSimpleConsumer,
    MessageListener,
    PushConsumer,
    SimpleConsumer,
)
from ringmq.client.rocketmq5.model import Message, SendReceipt
from ringmq.client.rocketmq5.producer import Producer
from ringmq.client.rocketmq5.transactions import Transaction, TransactionChecker, TransactionResolution

__all__ = [
    "ClientConfiguration",
    "ConsumeResult",
    "Credentials",
    "FilterExpression",
    "FilterType",
    "LitePushConsumer",
    "LiteSimpleConsumer",
    "Message",
    "MessageListener",
    "Producer",
    "PushConsumer",
    "SendReceipt",
    "SimpleConsumer",
    "Transaction",
    "TransactionChecker",
    "TransactionResolution",
]
