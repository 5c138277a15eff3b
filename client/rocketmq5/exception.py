"""The exceptions of the 5.x client; each that comes from a server carries the SDK's error as its `__cause__`."""


class ClientException(Exception):
    """The base of all; `code` is the broker's (of the remoting protocol, not of gRPC), None without an answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.__code = code

    def __str__(self) -> str:
        return f"{self.__code}, {super().__str__()}" if self.__code else super().__str__()

    @property
    def code(self) -> int | None:
        """The broker's code."""
        return self.__code


class BadRequestException(ClientException):
    """The broker refused the message."""


class UnauthorizedException(ClientException):
    """Not raised here: brokers have one code for this and for what is forbidden."""


class PaymentRequiredException(ClientException):
    """Not raised here."""


class ForbiddenException(ClientException):
    """The user is unknown, or may not do this."""


class NotFoundException(ClientException):
    """The topic has no route."""


class PayloadTooLargeException(ClientException):
    """Not raised here: sizes are checked before anything is sent (`IllegalArgumentException`)."""


class PayloadEmptyException(ClientException):
    """Not raised here, as above."""


class TooManyRequestsException(ClientException):
    """The broker has no time."""


class LiteTopicQuotaExceededException(ClientException):
    """Not raised here."""


class LiteSubscriptionQuotaExceededException(ClientException):
    """Not raised here."""


class RequestHeaderFieldsTooLargeException(ClientException):
    """Not raised here."""


class InternalErrorException(ClientException):
    """Any other failure at the broker, or no connection to it."""


class ProxyTimeoutException(ClientException):
    """No answer in time."""


class UnsupportedException(ClientException):
    """What is not there; the message says what to use."""


class IllegalArgumentException(ClientException):
    """A value that cannot be meant."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class IllegalStateException(ClientException):
    """The client is not started, or is shut down."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
