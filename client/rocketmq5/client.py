"""What producers and consumers of the 5.x client have in common; the SDK's errors in its words."""

import socket
import uuid
from types import TracebackType
from typing import Self

from ringmq.client.errors import BrokerError, ClientClosedError, RequestTimeoutError, RouteError, SendError
from ringmq.client.rocketmq5 import exception as errors
from ringmq.client.rocketmq5.configuration import ClientConfiguration, Credentials
from ringmq.remoting.codes import ResponseCode

__all__ = ["Client", "ClientConfiguration", "Credentials", "client_exception"]

_BY_CODE: dict[int, type[errors.ClientException]] = {
    ResponseCode.NO_PERMISSION: errors.ForbiddenException,
    ResponseCode.SYSTEM_BUSY: errors.TooManyRequestsException,
    ResponseCode.FLOW_CONTROL: errors.TooManyRequestsException,
    ResponseCode.MESSAGE_ILLEGAL: errors.BadRequestException,
    ResponseCode.TOPIC_NOT_EXIST: errors.NotFoundException,
}


def client_exception(error: Exception) -> errors.ClientException:
    """What the 5.x client would have raised."""
    cause = error.cause if isinstance(error, SendError) else error
    if isinstance(cause, errors.ClientException):
        return cause
    if isinstance(cause, BrokerError):
        return _BY_CODE.get(cause.code, errors.InternalErrorException)(str(error), cause.code)
    if isinstance(cause, ClientClosedError):
        return errors.IllegalStateException(str(error))
    if isinstance(cause, ValueError):
        return errors.IllegalArgumentException(str(error))
    if isinstance(cause, RouteError):
        return errors.NotFoundException(str(error))
    if isinstance(cause, RequestTimeoutError):
        return errors.ProxyTimeoutException(str(error))
    return errors.InternalErrorException(str(error))


class Client:
    """Started by `startup`, ended by `shutdown`; it cannot be started again."""

    def __init__(self, client_configuration: ClientConfiguration | None, tls_enable: bool = False) -> None:
        if client_configuration is None:
            raise errors.IllegalArgumentException("clientConfiguration should not be null.")
        self.client_configuration = client_configuration
        self.client_id = f"{socket.gethostname()}@{uuid.uuid4().hex}"
        self._settings = client_configuration.settings(tls_enable)
        self._is_running = False
        self._had_shutdown = False

    def __enter__(self) -> Self:
        self.startup()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def is_running(self) -> bool:
        """Between `startup` and `shutdown`."""
        return self._is_running

    def startup(self) -> None:
        """Begin. Raises `ClientException`."""
        if self._had_shutdown:
            raise errors.IllegalStateException(f"{self} had shutdown, can't startup again.")
        if self._is_running:
            return
        self._start()
        self._is_running = True

    def shutdown(self) -> None:
        """End. May be called again."""
        if self._is_running:
            self._is_running, self._had_shutdown = False, True
            self._stop()

    def _start(self) -> None:
        """Of each kind of client."""

    def _stop(self) -> None:
        """Of each kind of client."""
