"""Where the cluster is, who we are, and which messages are wanted."""

from enum import IntEnum

from ringmq.client.rocketmq5.exception import IllegalArgumentException
from ringmq.client.security.credentials import Credentials as SdkCredentials
from ringmq.client.security.tls import TlsSettings
from ringmq.client.settings import ConnectionSettings


class FilterType(IntEnum):
    """How a filter expression is read."""

    TAG = 1
    SQL = 2


class FilterExpression:
    """Which messages of a topic are wanted: by tag (`TagA || TagB`), or by SQL92 where the broker has that."""

    TAG_EXPRESSION_SUB_ALL = "*"

    def __init__(self, expression: str = TAG_EXPRESSION_SUB_ALL, filter_type: FilterType = FilterType.TAG) -> None:
        self.expression = expression
        self.filter_type = filter_type


class Credentials:
    """An access key with its secret; both empty for none."""

    def __init__(self, ak: str | None = "", sk: str | None = "") -> None:
        self.ak = ak or ""
        self.sk = sk or ""


class ClientConfiguration:
    """`endpoints` are name servers (host:port, joined by semicolons) where the 5.x client has proxies.
    `request_timeout` is in seconds."""

    def __init__(
        self, endpoints: str, credentials: Credentials | None, namespace: str = "", request_timeout: float = 3
    ) -> None:
        self.endpoints = endpoints.removeprefix("http://").removeprefix("https://")
        self.credentials = credentials or Credentials()
        self.namespace = namespace
        self.request_timeout = request_timeout

    @property
    def rpc_endpoints(self) -> str:
        """The name servers."""
        return self.endpoints

    def settings(self, tls_enable: bool) -> ConnectionSettings:
        """For the SDK's clients. Raises `IllegalArgumentException`."""
        keys = self.credentials
        try:
            return ConnectionSettings(
                request_timeout_ms=int(self.request_timeout * 1000),
                credentials=SdkCredentials(keys.ak, keys.sk) if keys.ak else None,
                tls=TlsSettings() if tls_enable else None,
                namespace=self.namespace,
            )
        except ValueError as error:
            raise IllegalArgumentException(str(error)) from error
