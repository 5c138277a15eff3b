"""The exceptions of the 4.x clients; each carries the message of the SDK's error, which is its `__cause__`."""


class RocketMQException(Exception):
    """The base of all."""


class NullPointerException(RocketMQException):
    """A client could not be made."""


class MallocFailed(RocketMQException):
    """Never raised here."""


class ProducerException(RocketMQException):
    """Of producers."""


class ProducerStartFailed(ProducerException):
    """The settings are wrong, or no name server address was given."""


class ProducerSendSyncFailed(ProducerException):
    """A message was refused, or not answered in time."""


class ProducerSendOnewayFailed(ProducerException):
    """A message could not leave."""


class ProducerSendOrderlyFailed(ProducerException):
    """A message for a chosen queue was refused, or not answered in time."""


class ProducerSendAsyncFailed(ProducerException):
    """Given to the exception callback of `send_async`. `error` is the broker's code, 0 without an answer."""

    def __init__(self, msg: str, error: int, file: str, line: int, type: str) -> None:
        super().__init__(msg)
        self.error = error
        self.file = file
        self.line = line
        self.type = type


class ConsumerException(RocketMQException):
    """Of consumers."""


class PushConsumerStartFailed(ConsumerException):
    """The settings are wrong, nothing is subscribed to, or no name server answers."""


class PullConsumerStartFailed(ConsumerException):
    """The settings are wrong, or no name server address was given."""


class PullConsumerFetchMQFailed(ConsumerException):
    """The queues of a topic could not be found out."""


class PullConsumerFetchMessageFailed(ConsumerException):
    """A queue could not be read."""
