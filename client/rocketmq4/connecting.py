"""What all 4.x clients are told before `start`: addresses, the group, credentials."""

import sys
import threading
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ringmq.client.rocketmq4.exceptions import RocketMQException
from ringmq.client.security.credentials import Credentials
from ringmq.client.settings import ConnectionSettings

DOMAIN_TIMEOUT_S = 3.0
DOMAIN_BYTES_MAX = 65_536


class Connecting(ABC):
    """The common setters, under the names of both packages. They count until `start`. In a `with` statement a client
    runs from `start` to `shutdown`."""

    def __init__(self, group_id: str | bytes) -> None:
        self.set_group(group_id)
        self._namesrv = ""
        self._domain = ""
        self._credentials: Credentials | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def shutdown(self) -> None:
        """End. May be called again."""

    def set_group(self, group_name: str | bytes) -> None:
        """The producer or consumer group."""
        self._group = group_name.decode() if isinstance(group_name, bytes) else group_name

    def set_namesrv_addr(self, addr: str | bytes) -> None:
        """host:port of the name servers, joined by semicolons."""
        self._namesrv = addr.decode() if isinstance(addr, bytes) else addr

    def set_namesrv_domain(self, domain: str | bytes) -> None:
        """A URL (http or https) whose page holds the addresses; it is read at `start`."""
        self._domain = domain.decode() if isinstance(domain, bytes) else domain

    set_name_server_address = set_namesrv_addr
    set_name_server_domain = set_namesrv_domain

    def set_session_credentials(
        self, access_key: str | bytes, access_secret: str | bytes, channel: str | bytes = ""
    ) -> None:
        """Sign requests with these keys; the channel (of a cloud service) is not used. Raises `RocketMQException`."""
        key, secret = (v.decode() if isinstance(v, bytes) else v for v in (access_key, access_secret))
        try:
            self._credentials = Credentials(key, secret)
        except ValueError as error:
            raise RocketMQException(str(error)) from error

    def _settings(self) -> ConnectionSettings:
        return ConnectionSettings(credentials=self._credentials)

    def _name_servers(self) -> str:
        """The addresses. Raises ValueError when there are none."""
        if self._namesrv:
            return self._namesrv
        if self._domain:
            return _addresses_at(self._domain)
        raise ValueError("no name server address: call set_namesrv_addr (or set_namesrv_domain) before start")


def close_dropped(close: Callable[[], object]) -> None:
    """What the garbage collector finds is shut down, as there: in a thread, since it may find it anywhere."""
    if not sys.is_finalizing():
        threading.Thread(target=close, name="ringmq dropped", daemon=True).start()


def _addresses_at(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the name servers' domain {url!r} is no http or https URL")
    try:
        with urllib.request.urlopen(url, timeout=DOMAIN_TIMEOUT_S) as answer:
            text: bytes = answer.read(DOMAIN_BYTES_MAX)
    except (OSError, urllib.error.URLError) as error:
        raise ValueError(f"the name servers' addresses could not be read from {url}: {error}") from error
    return text.decode(errors="replace").strip()
